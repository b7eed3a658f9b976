-- +goose Up

-- A signal resumes every hook of its project that waits for its name, if it is as the hook wants it. It is here until it
-- was handed to all of them, which a piece of work in messages does, and for as long as it is to be kept after.
CREATE TABLE signals (
    project    text COLLATE "C" NOT NULL,
    -- sig_ and a ULID, in the order of which signals are listed.
    id         text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- The name that its sender gave it, so that it counts once; empty for none.
    key        text COLLATE "C" NOT NULL DEFAULT '',
    -- JSON, as it came.
    data       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Hooks that are opened up to then may still look back at it.
    keep_until timestamptz NOT NULL,
    -- When it goes, if it was handed over: its key is known at least until then.
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project, id),
    CONSTRAINT signals_expires_at_check CHECK (expires_at >= keep_until AND keep_until >= created_at)
);
CREATE UNIQUE INDEX signals_key ON signals (project, name, key) WHERE key <> '';
-- For hooks that look back.
CREATE INDEX signals_name_idx ON signals (project, name, created_at, id);
CREATE INDEX signals_expires_at_idx ON signals (expires_at);

-- +goose Down
DROP TABLE signals;
