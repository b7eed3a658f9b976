-- Payloads of projects are encrypted by keys of their own, which keys outside of the database wrap.

-- +goose Up
CREATE TABLE data_keys (
    -- Random. It is in every payload that the key encrypts.
    id bytea PRIMARY KEY CHECK (octet_length(id) = 16),
    project text COLLATE "C" NOT NULL,
    -- The name of the key that wraps this one, and this one wrapped; NULL once it is destroyed.
    wrapped_by text COLLATE "C" NOT NULL,
    wrapped bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Since when another key encrypts what is written, and this one only decrypts.
    retired_at timestamptz,
    destroyed_at timestamptz,
    -- Grows with every change of a row, in the order of the commits.
    revision bigint NOT NULL UNIQUE,
    CONSTRAINT data_keys_destroyed_check CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL)
        AND (destroyed_at IS NULL OR retired_at IS NOT NULL))
);
-- One key of a project encrypts.
CREATE UNIQUE INDEX data_keys_current_key ON data_keys (project) WHERE retired_at IS NULL;
CREATE INDEX data_keys_project_idx ON data_keys (project, created_at);

-- +goose Down
DROP TABLE data_keys;
