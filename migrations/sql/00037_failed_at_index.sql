-- +goose NO TRANSACTION

-- +goose Up

-- Counts the messages of a deployment that failed and are tried again.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_failed_at_idx;
CREATE INDEX CONCURRENTLY messages_failed_at_idx
    ON messages (project, deployment_id) WHERE parked_at IS NULL AND last_error <> '';
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_failed_at_idx;
