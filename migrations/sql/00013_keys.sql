-- +goose Up

-- Projects are isolated from each other.
CREATE TABLE projects (
    name       text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO projects (name) VALUES ('default');

-- A key gives access to one project, with a role. Rows of revoked keys are kept, because the audit refers to them.
CREATE TABLE api_keys (
    -- key_ and a ULID. Keys are listed in this order.
    id           text COLLATE "C" PRIMARY KEY,
    project      text COLLATE "C" NOT NULL CONSTRAINT api_keys_project_fkey REFERENCES projects,
    name         text NOT NULL,
    role         text NOT NULL CONSTRAINT api_keys_role_check
                 CHECK (role IN ('admin', 'write', 'read', 'metadata', 'invoke')),
    -- The start of the key, by which people recognise it.
    prefix       text NOT NULL,
    -- SHA-256 of the key. A slow hash is needed for passwords only: a key is 256 random bits, which cannot be found by
    -- trying.
    hash         bytea NOT NULL CONSTRAINT api_keys_hash_key UNIQUE
                 CONSTRAINT api_keys_hash_check CHECK (length(hash) = 32),
    created_at   timestamptz NOT NULL,
    -- NULL for a key that never expires.
    expires_at   timestamptz,
    revoked_at   timestamptz,
    -- Accurate to about a minute.
    last_used_at timestamptz
);
CREATE INDEX api_keys_project_idx ON api_keys (project, id);

-- Changes of keys, projects, deployments, secrets, messages and retention, each recorded in its own transaction.
CREATE TABLE audit (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    project text COLLATE "C" NOT NULL,
    -- Who did it: the ID of a key, or STEPWELL_API_KEY, open, cli or server.
    actor   text NOT NULL,
    action  text NOT NULL,
    -- The object that was changed.
    subject text NOT NULL,
    detail  jsonb NOT NULL
);
CREATE INDEX audit_project_idx ON audit (project, seq);

-- Webhooks are looked up by project and token.
DROP INDEX hooks_webhook_idx;

-- +goose Down
CREATE INDEX hooks_webhook_idx ON hooks (token) WHERE is_webhook;
DROP TABLE audit, api_keys, projects;
