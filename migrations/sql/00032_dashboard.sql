-- What the pages access and servers of the dashboard read. Servers of the previous version insert without the new
-- columns, and do not use the table.

-- +goose Up

-- The audit by what a list selects.
CREATE INDEX audit_actor_idx ON audit (project, actor, seq);
CREATE INDEX audit_action_idx ON audit (project, action, seq);
CREATE INDEX audit_subject_idx ON audit (project, subject, seq);

-- The version and the role of the program; empty if it is older than these columns.
ALTER TABLE processes ADD version text NOT NULL DEFAULT '', ADD role text NOT NULL DEFAULT '';

-- The sessions that are too old, and those that have opened a project.
CREATE INDEX sessions_created_idx ON sessions (created_at);
CREATE INDEX session_keys_project_idx ON session_keys (project, session_id);

-- Codes that open a project in a browser, once. They live for a minute.
CREATE TABLE session_codes (
    -- The SHA-256 of the code.
    id          bytea PRIMARY KEY CONSTRAINT session_codes_id_check CHECK (octet_length(id) = 32),
    project     text COLLATE "C" NOT NULL REFERENCES projects (name),
    -- The key that made the code, or the HMAC of the environment's key with the code: as in session_keys.
    key_id      text COLLATE "C" REFERENCES api_keys (id) ON DELETE CASCADE,
    environment bytea CONSTRAINT session_codes_environment_check CHECK (octet_length(environment) = 32),
    created_at  timestamptz NOT NULL,
    CONSTRAINT session_codes_one_check CHECK ((key_id IS NULL) <> (environment IS NULL))
);
CREATE INDEX session_codes_created_idx ON session_codes (created_at);

-- +goose Down
DROP TABLE session_codes;
DROP INDEX session_keys_project_idx, sessions_created_idx;
ALTER TABLE processes DROP version, DROP role;
DROP INDEX audit_actor_idx, audit_action_idx, audit_subject_idx;
