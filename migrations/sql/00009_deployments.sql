-- +goose Up

-- The workflows a deployment has, sorted; a run that names no deployment goes to the newest that lists its workflow, or
-- else to the newest that lists none.
ALTER TABLE deployments ADD COLUMN workflows text[] NOT NULL DEFAULT '{}';

-- The runs that had a key one after the other.
CREATE INDEX runs_key_idx ON runs (project, unique_key, created_at, id) WHERE unique_key <> '';

-- +goose Down
DROP INDEX runs_key_idx;
ALTER TABLE deployments DROP COLUMN workflows;
