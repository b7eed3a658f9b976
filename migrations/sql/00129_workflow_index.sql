-- +goose NO TRANSACTION

-- +goose Up

-- Lists runs by workflow and status, as the index of the migration before does by status.
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_workflow_created_idx;
CREATE INDEX CONCURRENTLY runs_workflow_created_idx ON runs (project, workflow_name, status, created_at);
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_workflow_created_idx;
