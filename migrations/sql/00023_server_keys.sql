-- +goose Up

-- The keys that all servers of this database share, and nobody else has.
CREATE TABLE server_keys (
    -- What the key is for: calls.
    name       text COLLATE "C" PRIMARY KEY,
    -- In plain text, because HMAC needs it.
    secret     bytea NOT NULL CONSTRAINT server_keys_secret_check CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A proxy may repeat the call of a function. These say how long the log was when one of the copies last wrote to it
-- during the call, and which request did; NULL if none has. What does not know as much of the log is refused.
ALTER TABLE messages ADD written_seq bigint, ADD written_by bigint;

-- +goose Down
ALTER TABLE messages DROP written_seq, DROP written_by;
DROP TABLE server_keys;
