-- +goose Up

-- A process that delivers messages. All its times are the database's clock.
CREATE TABLE processes (
    id           text COLLATE "C" PRIMARY KEY,
    host         text NOT NULL,
    -- The advisory lock it holds for as long as its session is open.
    session_key  bigint NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    beat_at      timestamptz NOT NULL DEFAULT now(),
    -- Since when its beats have come without a pause: one that was away itself cannot judge others.
    steady_since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

ALTER TABLE messages
    -- The process that makes the delivery under way; empty when the function keeps the lease by itself.
    ADD holder          text COLLATE "C" NOT NULL DEFAULT '',
    -- How often in a row the function could not be reached. Such deliveries are not counted.
    ADD unreached       integer NOT NULL DEFAULT 0,
    -- When the first of the deliveries counted failed.
    ADD first_failed_at timestamptz,
    -- How long the run's log was when the delivery under way began; 0 when it is about no run.
    ADD seen_seq        bigint NOT NULL DEFAULT 0;

-- Also finds the messages of a run, which are all for the deployment that executes it.
CREATE INDEX messages_run_idx ON messages (project, deployment_id, run_id);
DROP INDEX messages_deployment_idx;
CREATE INDEX messages_parked_idx ON messages (project, id) WHERE parked_at IS NOT NULL;
-- Those that are being delivered, for lists: few among many that wait.
CREATE INDEX messages_leased_idx ON messages (project, id) WHERE lease <> '';

-- The runs that have not ended, for the sweeper. Its columns change once in a run's life, so that writing
-- events stays as cheap as it was.
CREATE INDEX runs_open_idx ON runs (id) WHERE completed_at IS NULL;

-- What the sweeper knows about a run that is not in its log: how much of it a delivery has seen, and
-- whether it found the run without a way to move.
CREATE TABLE run_wakes (
    run_id       text COLLATE "C" PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- How long the log was when the last delivery that was acknowledged began. Kept for runs with hooks only.
    seen_seq     bigint NOT NULL DEFAULT 0,
    -- Set while the run has no way to move, with the reason and the length of its log.
    stranded_at  timestamptz,
    reason       text NOT NULL DEFAULT '',
    stranded_seq bigint NOT NULL DEFAULT 0,
    -- How often it was woken at that length, and when last.
    repairs      integer NOT NULL DEFAULT 0,
    repaired_at  timestamptz
);
CREATE INDEX run_wakes_stranded_idx ON run_wakes (run_id) WHERE stranded_at IS NOT NULL;

-- Where the sweeper is on its round over the open runs, and when its next turn is. There is one row.
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
