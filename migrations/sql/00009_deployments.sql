-- +goose Up

-- The workflows a deployment has, sorted; a run that names no deployment goes to the newest that lists its workflow, or
-- else to the newest that lists none.
ALTER TABLE deployments ADD COLUMN workflows text[] NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE deployments DROP COLUMN workflows;
