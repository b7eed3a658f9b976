-- +goose Up
-- A collection is a run that will be: starts with the same key are collected until it is due. Work in messages starts
-- the run; its subject is the run's ID. The row is deleted in the transaction that starts the run.
CREATE TABLE collections (
    -- The ID that the run will have.
    run_id     text COLLATE "C" PRIMARY KEY,
    project    text COLLATE "C" NOT NULL,
    workflow   text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL CONSTRAINT collections_kind_check CHECK (kind IN ('debounce', 'batch')),
    key        text COLLATE "C" NOT NULL,
    -- When the run starts: quiet after the last start, and max_wait after the first one at the latest.
    quiet      interval NOT NULL,
    max_wait   interval NOT NULL,
    -- Which input the run gets. With all it is a list of at most size items and max_bytes bytes.
    keep       text COLLATE "C" NOT NULL CONSTRAINT collections_keep_check CHECK (keep IN ('last', 'first', 'all')),
    size       integer NOT NULL,
    max_bytes  bigint NOT NULL,
    -- What the run is started with. The data is that of its first event; input is empty if the run gets a list.
    deployment text COLLATE "C" NOT NULL,
    data       jsonb NOT NULL,
    timeout    interval NOT NULL,
    input      bytea NOT NULL,
    -- How many starts were collected, and the bytes of the input so far.
    count      bigint NOT NULL,
    bytes      bigint NOT NULL,
    first_at   timestamptz NOT NULL,
    last_at    timestamptz NOT NULL,
    due_at     timestamptz NOT NULL,
    -- Why the run could not be started when it was due; empty if that was not tried.
    refusal    text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX collections_key ON collections (project, workflow, kind, key);
CREATE INDEX collections_project_idx ON collections (project, run_id);

-- The starts of a collection that have to be remembered: those whose inputs become a list, until the run has started,
-- and those with an idempotency key, as long as the run is kept.
CREATE TABLE collected (
    run_id          text COLLATE "C" NOT NULL,
    -- Numbers the starts of a collection in the order of their arrival.
    seq             bigint NOT NULL,
    project         text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    input           bytea NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE UNIQUE INDEX collected_key ON collected (project, idempotency_key) WHERE idempotency_key <> '';

-- +goose Down
DROP TABLE collected, collections;
