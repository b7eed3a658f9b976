-- +goose NO TRANSACTION

-- +goose Up

-- Counts the open runs of a tree.
SET lock_timeout = 0;
DROP INDEX IF EXISTS runs_open_descendants_idx;
CREATE INDEX CONCURRENTLY runs_open_descendants_idx
    ON runs (root_id) WHERE root_id <> '' AND completed_at IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX runs_open_descendants_idx;
