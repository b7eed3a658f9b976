-- +goose Up

-- Projects cannot see each other.
CREATE TABLE projects (
    name       text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO projects (name) VALUES ('default');

-- A key lets requests into one project, as its role says. Rows stay when keys are revoked: the audit names them.
CREATE TABLE api_keys (
    -- key_ and a ULID, in the order of which keys are listed.
    id           text COLLATE "C" PRIMARY KEY,
    project      text COLLATE "C" NOT NULL CONSTRAINT api_keys_project_fkey REFERENCES projects,
    name         text NOT NULL,
    role         text NOT NULL CONSTRAINT api_keys_role_check
                 CHECK (role IN ('admin', 'write', 'read', 'metadata', 'invoke')),
    -- How the key begins, for people to tell keys apart.
    prefix       text NOT NULL,
    -- SHA-256 of the key. The key is 256 random bits, which nobody finds by trying, however fast the hash is; a slow one
    -- is for passwords.
    hash         bytea NOT NULL CONSTRAINT api_keys_hash_key UNIQUE
                 CONSTRAINT api_keys_hash_check CHECK (length(hash) = 32),
    created_at   timestamptz NOT NULL,
    -- Unset for a key that is good for ever.
    expires_at   timestamptz,
    revoked_at   timestamptz,
    -- To the minute or so.
    last_used_at timestamptz
);
CREATE INDEX api_keys_project_idx ON api_keys (project, id);

-- What was done to keys, projects, deployments, secrets, messages and retention: a row in the transaction that did it.
CREATE TABLE audit (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    project text COLLATE "C" NOT NULL,
    -- The ID of a key, or STEPWELL_API_KEY, open, cli or server.
    actor   text NOT NULL,
    action  text NOT NULL,
    -- What it was done to.
    subject text NOT NULL,
    detail  jsonb NOT NULL
);
CREATE INDEX audit_project_idx ON audit (project, seq);

-- Webhooks are looked up in their project.
DROP INDEX hooks_webhook_idx;

-- +goose Down
CREATE INDEX hooks_webhook_idx ON hooks (token) WHERE is_webhook;
DROP TABLE audit, api_keys, projects;
