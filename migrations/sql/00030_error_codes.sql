-- +goose Up

-- Lists the failed runs with a code in the order of all lists of runs. Few runs fail, so the index is small.
CREATE INDEX runs_error_idx ON runs (project, error_code, created_at, id) WHERE error_code <> '';

-- +goose Down
DROP INDEX runs_error_idx;
