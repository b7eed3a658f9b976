-- The keys with which calls of a project's functions are signed.

-- +goose Up
CREATE TABLE signing_keys (
    project    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    -- A project may have two keys, one per slot: the current one and its replacement.
    slot       smallint NOT NULL CONSTRAINT signing_keys_slot_check CHECK (slot IN (1, 2)),
    -- In plain text, because HMAC needs it.
    secret     bytea NOT NULL CONSTRAINT signing_keys_secret_check CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (project, id),
    CONSTRAINT signing_keys_slot_key UNIQUE (project, slot)
);

-- +goose Down
DROP TABLE signing_keys;
