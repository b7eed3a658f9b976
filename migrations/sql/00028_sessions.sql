-- The sessions of browsers in the dashboard. Servers of the previous version do not use them.

-- +goose Up
CREATE TABLE sessions (
    -- The SHA-256 of the cookie.
    id         bytea PRIMARY KEY CONSTRAINT sessions_id_check CHECK (octet_length(id) = 32),
    created_at timestamptz NOT NULL,
    -- The last use, accurate to an hour.
    used_at    timestamptz NOT NULL
);

-- The key with which a session opened each project. The text of a key is stored nowhere.
CREATE TABLE session_keys (
    session_id  bytea NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    project     text COLLATE "C" NOT NULL REFERENCES projects (name),
    key_id      text COLLATE "C" REFERENCES api_keys (id) ON DELETE CASCADE,
    -- Of the key in the server's environment, instead of key_id: its HMAC with the cookie. With another key in the
    -- environment it is void; without the cookie it tells nothing about the key.
    environment bytea CONSTRAINT session_keys_environment_check CHECK (octet_length(environment) = 32),
    PRIMARY KEY (session_id, project),
    CONSTRAINT session_keys_one_check CHECK ((key_id IS NULL) <> (environment IS NULL))
);

-- +goose Down
DROP TABLE session_keys;
DROP TABLE sessions;
