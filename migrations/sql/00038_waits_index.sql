-- +goose NO TRANSACTION

-- +goose Up

-- The waits of a project that are not over, by when they end.
SET lock_timeout = 0;
DROP INDEX IF EXISTS waits_open_idx;
CREATE INDEX CONCURRENTLY waits_open_idx
    ON waits (project, resume_at, run_id, id) WHERE status = 'waiting';
RESET lock_timeout;

-- +goose Down
DROP INDEX waits_open_idx;
