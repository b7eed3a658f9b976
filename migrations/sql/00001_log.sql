-- +goose Up

-- A run is the fold of its events: every column except id and project can be computed from them.
CREATE TABLE runs (
    id                text COLLATE "C" PRIMARY KEY,
    project           text COLLATE "C" NOT NULL,
    deployment_id     text NOT NULL,
    workflow_name     text COLLATE "C" NOT NULL,
    status            text NOT NULL
        CONSTRAINT runs_status_check CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled')),
    spec_version      integer NOT NULL,
    attributes        jsonb NOT NULL DEFAULT '{}',
    error_code        text NOT NULL DEFAULT '',
    last_seq          bigint NOT NULL CONSTRAINT runs_last_seq_check CHECK (last_seq >= 1),
    -- seq of the event that ended the run; its payload is the output or the error. 0 while the run is live.
    end_seq           bigint NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    started_at        timestamptz,
    completed_at      timestamptz,
    CONSTRAINT runs_completed_at_check
        CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CONSTRAINT runs_end_seq_check CHECK ((completed_at IS NOT NULL) = (end_seq > 0))
) WITH (fillfactor = 80);
CREATE INDEX runs_created_idx ON runs (project, created_at, id);
CREATE INDEX runs_workflow_idx ON runs (project, workflow_name, created_at, id);

-- The log, keyed and ordered by (run_id, seq). Nothing is ordered by time.
CREATE TABLE events (
    run_id         text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq            bigint NOT NULL CONSTRAINT events_seq_check CHECK (seq >= 1),
    type           text NOT NULL
        CONSTRAINT events_type_check CHECK (type IN (
            'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'attr_set',
            'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
            'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
            'wait_created', 'wait_completed')),
    correlation_id text COLLATE "C" NOT NULL DEFAULT '',
    spec_version   integer NOT NULL,
    created_at     timestamptz NOT NULL,
    occurred_at    timestamptz,
    data           jsonb NOT NULL,
    extra          bytea,
    payload        bytea,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX events_correlation_idx ON events (correlation_id, run_id, seq) WHERE correlation_id <> '';
-- A run creates a hook once, whether or not it gets the token. For steps and waits, the keys of their tables ensure
-- that.
CREATE UNIQUE INDEX events_hook_claim_key ON events (run_id, correlation_id)
    WHERE type IN ('hook_created', 'hook_conflict');

CREATE TABLE steps (
    run_id       text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    id           text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    status       text NOT NULL
        CONSTRAINT steps_status_check CHECK (status IN ('pending', 'running', 'completed', 'failed')),
    attempt      integer NOT NULL CONSTRAINT steps_attempt_check CHECK (attempt >= 0),
    spec_version integer NOT NULL,
    -- seq of step_created, whose payload is the input.
    created_seq  bigint NOT NULL,
    -- seq of the last step_completed, step_failed or step_retrying, whose payload is the output or error.
    result_seq   bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    started_at   timestamptz,
    completed_at timestamptz,
    retry_after  timestamptz,
    PRIMARY KEY (run_id, id),
    CONSTRAINT steps_completed_at_check CHECK ((status IN ('completed', 'failed')) = (completed_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX steps_created_key ON steps (run_id, created_seq);

-- Live hooks. Disposing of a hook, or the end of its run, deletes the row and frees the token.
CREATE TABLE hooks (
    run_id       text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    id           text COLLATE "C" NOT NULL,
    project      text COLLATE "C" NOT NULL,
    token        text COLLATE "C" NOT NULL,
    is_webhook   boolean NOT NULL,
    spec_version integer NOT NULL,
    -- seq of hook_created, whose payload is the metadata.
    created_seq  bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (run_id, id),
    CONSTRAINT hooks_token_key UNIQUE (project, token)
);
CREATE INDEX hooks_id_idx ON hooks (id);
CREATE INDEX hooks_created_idx ON hooks (project, created_at, id);

-- Waits are kept as long as their run.
CREATE TABLE waits (
    run_id       text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    id           text COLLATE "C" NOT NULL,
    status       text NOT NULL CONSTRAINT waits_status_check CHECK (status IN ('waiting', 'completed')),
    spec_version integer NOT NULL,
    resume_at    timestamptz,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    completed_at timestamptz,
    PRIMARY KEY (run_id, id),
    CONSTRAINT waits_completed_at_check CHECK ((status = 'completed') = (completed_at IS NOT NULL))
);

-- +goose Down
DROP TABLE waits, hooks, steps, events, runs;
