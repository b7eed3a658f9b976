-- +goose Up

-- The hook of another run from which this hook has taken its token over. Servers of the previous version have no such
-- hooks, and insert without it.
ALTER TABLE hooks ADD COLUMN claimed_from jsonb;

-- +goose Down
ALTER TABLE hooks DROP COLUMN claimed_from;
