-- Lists the forks of a run.

-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_fork_idx;
CREATE INDEX CONCURRENTLY runs_fork_idx ON runs (fork_of, created_at, id) WHERE fork_of <> '';
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_fork_idx;
