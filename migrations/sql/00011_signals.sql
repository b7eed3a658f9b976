-- +goose Up

-- A signal resumes every hook of its project that waits for its name and whose condition it meets. Work in messages
-- dispatches it to the hooks. The row is kept until that is done, and until keep_until.
CREATE TABLE signals (
    project    text COLLATE "C" NOT NULL,
    -- sig_ and a ULID. Signals are listed in this order.
    id         text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- The sender's idempotency key; empty for none.
    key        text COLLATE "C" NOT NULL DEFAULT '',
    -- JSON as received.
    data       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Hooks opened until then may still receive the signal by replay.
    keep_until timestamptz NOT NULL,
    -- When the row is deleted, if dispatched: the idempotency key is remembered at least until then.
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project, id),
    CONSTRAINT signals_expires_at_check CHECK (expires_at >= keep_until AND keep_until >= created_at)
);
CREATE UNIQUE INDEX signals_key ON signals (project, name, key) WHERE key <> '';
-- For replay.
CREATE INDEX signals_name_idx ON signals (project, name, created_at, id);
CREATE INDEX signals_expires_at_idx ON signals (expires_at);

-- +goose Down
DROP TABLE signals;
