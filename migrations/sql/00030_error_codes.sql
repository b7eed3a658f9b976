-- +goose NO TRANSACTION

-- +goose Up

-- Lists the failed runs with a code in the order of all lists of runs. Few runs fail, so the index is small.
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_error_idx;
CREATE INDEX CONCURRENTLY runs_error_idx
    ON runs (project, error_code, created_at, id) WHERE error_code <> '';
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_error_idx;
