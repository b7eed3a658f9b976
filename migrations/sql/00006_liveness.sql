-- +goose Up

-- Processes that deliver messages. All times are from the database's clock.
CREATE TABLE processes (
    id           text COLLATE "C" PRIMARY KEY,
    host         text NOT NULL,
    -- The advisory lock that the process holds while its session is open.
    session_key  bigint NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    beat_at      timestamptz NOT NULL DEFAULT now(),
    -- The start of its uninterrupted heartbeats: a process that was paused itself cannot tell whether others are dead.
    steady_since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

ALTER TABLE messages
    -- The process that makes the delivery in progress; empty if the function extends the lease by itself.
    ADD holder          text COLLATE "C" NOT NULL DEFAULT '',
    -- Number of consecutive deliveries that did not reach the function. They do not count as deliveries.
    ADD unreached       integer NOT NULL DEFAULT 0,
    -- When the first counted delivery failed.
    ADD first_failed_at timestamptz,
    -- last_seq of the run when the delivery in progress began; 0 if the message has no run.
    ADD seen_seq        bigint NOT NULL DEFAULT 0;

-- Also finds the messages of a run: all are for the deployment that executes it.
CREATE INDEX messages_run_idx ON messages (project, deployment_id, run_id);
DROP INDEX messages_deployment_idx;
CREATE INDEX messages_parked_idx ON messages (project, id) WHERE parked_at IS NOT NULL;
-- For lists of the messages being delivered: few compared to those waiting.
CREATE INDEX messages_leased_idx ON messages (project, id) WHERE lease <> '';

-- The live runs, for the sweeper. The indexed columns change once in a run's life, so writing events stays as cheap as
-- before.
CREATE INDEX runs_open_idx ON runs (id) WHERE completed_at IS NULL;

-- The sweeper's state of a run: how much of its log a delivery has seen, and whether the run is stranded, that is,
-- nothing is left that could make it proceed.
CREATE TABLE run_wakes (
    run_id       text COLLATE "C" PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- last_seq of the run when the last acknowledged delivery began. Kept only for runs with hooks.
    seen_seq     bigint NOT NULL DEFAULT 0,
    -- Set while the run is stranded, with the reason and its last_seq.
    stranded_at  timestamptz,
    reason       text NOT NULL DEFAULT '',
    stranded_seq bigint NOT NULL DEFAULT 0,
    -- How often the run was woken at that last_seq, and when last.
    repairs      integer NOT NULL DEFAULT 0,
    repaired_at  timestamptz
);
CREATE INDEX run_wakes_stranded_idx ON run_wakes (run_id) WHERE stranded_at IS NOT NULL;

-- The sweeper's position among the live runs, and when it runs next. A single row.
CREATE TABLE sweeper (
    one    boolean PRIMARY KEY DEFAULT true CONSTRAINT sweeper_one_check CHECK (one),
    place  text COLLATE "C" NOT NULL DEFAULT '',
    due_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO sweeper DEFAULT VALUES;

-- +goose Down
DROP TABLE sweeper, run_wakes, processes;
DROP INDEX runs_open_idx, messages_parked_idx, messages_leased_idx;
CREATE INDEX messages_deployment_idx ON messages (project, deployment_id);
DROP INDEX messages_run_idx;
ALTER TABLE messages DROP holder, DROP unreached, DROP first_failed_at, DROP seen_seq;
