-- +goose NO TRANSACTION

-- +goose Up

-- Lists the messages of a project that failed and are tried again. Few are in this index.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_failed_idx;
CREATE INDEX CONCURRENTLY messages_failed_idx
    ON messages (project, id) WHERE parked_at IS NULL AND last_error <> '';
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_failed_idx;
