-- +goose Up

-- The workflows of a deployment, sorted. A run that names no deployment goes to the newest deployment that lists its
-- workflow, else to the newest that lists none.
ALTER TABLE deployments ADD COLUMN workflows text[] NOT NULL DEFAULT '{}';

-- For the history of a unique key: the runs that have had it.
CREATE INDEX runs_key_idx ON runs (project, unique_key, created_at, id) WHERE unique_key <> '';

-- +goose Down
DROP INDEX runs_key_idx;
ALTER TABLE deployments DROP COLUMN workflows;
