-- +goose Up
-- Triggers start a run when something happens: a signal, a request to a webhook, the end of a run. A signal and the end
-- of a run leave work in messages for each trigger that matches; its subject is the trigger's ID and the event's.
CREATE TABLE triggers (
    project     text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    -- trg_ and a ULID: a trigger that is created again has another one.
    id          text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL
        CONSTRAINT triggers_kind_check CHECK (kind IN ('signal', 'webhook', 'runEnded')),
    -- What it waits for: the name of a signal, the token of a webhook, or the workflow of runs.
    source      text COLLATE "C" NOT NULL,
    -- An expression in CEL; empty for none.
    condition   text NOT NULL,
    -- With which statuses the runs end; empty for other kinds.
    statuses    text[] NOT NULL,
    -- The signature scheme of a webhook and its secret; empty for none.
    verify      text COLLATE "C" NOT NULL,
    secret      text COLLATE "C" NOT NULL,
    -- What it starts. An empty deployment stands for the newest one of the workflow, and an empty input for the event.
    workflow    text COLLATE "C" NOT NULL,
    deployment  text COLLATE "C" NOT NULL,
    input       bytea NOT NULL,
    attributes  jsonb NOT NULL,
    unique_key  text COLLATE "C" NOT NULL,
    joins       boolean NOT NULL,
    timeout     interval NOT NULL,
    paused_at   timestamptz,
    pause_note  text NOT NULL,
    -- Changes with every write, so that what was read before is not acted upon.
    revision    bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);
CREATE UNIQUE INDEX triggers_id_key ON triggers (id);
-- Every end of a run and every signal looks here.
CREATE INDEX triggers_source_idx ON triggers (project, kind, source);

-- What became of each event. The key is the second guard against starting twice; the first is the idempotency key of
-- the run.
CREATE TABLE trigger_events (
    trigger_id text COLLATE "C" NOT NULL REFERENCES triggers (id) ON DELETE CASCADE,
    -- The ID of the signal, of the request, or of the run that ended.
    event      text COLLATE "C" NOT NULL,
    project    text COLLATE "C" NOT NULL,
    -- The order of the decisions. The oldest are deleted.
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    decision   text COLLATE "C" NOT NULL CONSTRAINT trigger_events_decision_check
        CHECK (decision IN ('started', 'joined', 'skipped', 'refused', 'retrying')),
    -- The run that was started or joined, or that has the key; empty for none.
    run_id     text COLLATE "C" NOT NULL,
    reason     text NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (trigger_id, event)
);
CREATE INDEX trigger_events_seq_idx ON trigger_events (trigger_id, seq);

-- +goose Down
DROP TABLE trigger_events, triggers;
