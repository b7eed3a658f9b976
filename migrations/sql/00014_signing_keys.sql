-- What calls of a project's functions are signed with.

-- +goose Up
CREATE TABLE signing_keys (
    project    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    -- There are as many slots as a project may have keys: the one in use, and the one that is to replace it.
    slot       smallint NOT NULL CONSTRAINT signing_keys_slot_check CHECK (slot IN (1, 2)),
    -- HMAC needs it as it is.
    secret     bytea NOT NULL CONSTRAINT signing_keys_secret_check CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (project, id),
    CONSTRAINT signing_keys_slot_key UNIQUE (project, slot)
);

-- +goose Down
DROP TABLE signing_keys;
