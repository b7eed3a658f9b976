-- +goose Up

-- The address of the client, as the server saw it; empty for changes that came from no request. A constant default
-- rewrites no rows. Servers of the previous version insert without it.
ALTER TABLE audit ADD COLUMN address text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE audit DROP COLUMN address;
