-- +goose NO TRANSACTION

-- +goose Up

-- Counts the open runs of a deployment.
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_deployment_idx;
CREATE INDEX CONCURRENTLY runs_deployment_idx
    ON runs (project, deployment_id) WHERE completed_at IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_deployment_idx;
