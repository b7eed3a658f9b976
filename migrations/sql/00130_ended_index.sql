-- +goose NO TRANSACTION

-- +goose Up

-- Lists ended runs by their ends, for retention, without their IDs.
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_completed_idx;
CREATE INDEX CONCURRENTLY runs_completed_idx ON runs (project, completed_at) WHERE completed_at IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_completed_idx;
