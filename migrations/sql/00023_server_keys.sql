-- The keys that all servers of this database share, and nobody else has.

-- +goose Up
CREATE TABLE server_keys (
    -- What the key is for: calls.
    name       text COLLATE "C" PRIMARY KEY,
    -- In plain text, because HMAC needs it.
    secret     bytea NOT NULL CONSTRAINT server_keys_secret_check CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE server_keys;
