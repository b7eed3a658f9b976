-- +goose Up
-- A deployment may execute steps, and have no workflow.
ALTER TABLE deployments ADD COLUMN steps_only boolean NOT NULL DEFAULT false
    CONSTRAINT deployments_steps_only_check CHECK (NOT steps_only OR workflows = '{}');

-- +goose Down
ALTER TABLE deployments DROP COLUMN steps_only;
