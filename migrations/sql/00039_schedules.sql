-- +goose Up
-- Schedules start runs at the ticks of a cron expression or an interval. Work in messages decides the ticks: its subject
-- is the schedule's ID, and it is due at the next tick.
CREATE TABLE schedules (
    project         text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    -- sched_ and a ULID: a schedule that is created again has another one.
    id              text COLLATE "C" NOT NULL,
    -- When it ticks: either of the two.
    cron            text NOT NULL,
    every           interval NOT NULL,
    time_zone       text NOT NULL,
    -- What a tick starts. An empty deployment stands for the newest one of the workflow.
    workflow        text COLLATE "C" NOT NULL,
    deployment      text COLLATE "C" NOT NULL,
    input           bytea NOT NULL,
    attributes      jsonb NOT NULL,
    timeout         interval NOT NULL,
    overlap         text COLLATE "C" NOT NULL
        CONSTRAINT schedules_overlap_check CHECK (overlap IN ('skip', 'wait', 'cancel', 'allow')),
    catch_up        text COLLATE "C" NOT NULL CONSTRAINT schedules_catch_up_check CHECK (catch_up IN ('latest', 'all')),
    catch_up_window interval NOT NULL,
    jitter          interval NOT NULL,
    paused_at       timestamptz,
    pause_note      text NOT NULL DEFAULT '',
    -- Every tick up to here has its decision, and no tick after it.
    decided_until   timestamptz NOT NULL,
    -- The next tick; NULL if there is none.
    next_at         timestamptz,
    -- The tick that waits for the end of the last run; NULL if none does.
    waiting_at      timestamptz,
    -- The last run that a tick or a trigger has started; empty for none.
    run_id          text COLLATE "C" NOT NULL DEFAULT '',
    -- The backfill under way: all of its ticks up to backfill_at are decided, and it ends with backfill_until.
    backfill_at     timestamptz,
    backfill_until  timestamptz,
    backfill_repeat boolean NOT NULL DEFAULT false,
    backfill_run_id text COLLATE "C" NOT NULL DEFAULT '',
    -- How many decisions have been recorded.
    ticks           bigint NOT NULL DEFAULT 0,
    -- Changes with every write, so that a decision applies only to the schedule that it was made for.
    revision        bigint NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (project, name),
    CONSTRAINT schedules_timing_check CHECK ((cron = '') <> (every = '0')),
    CONSTRAINT schedules_backfill_check CHECK ((backfill_at IS NULL) = (backfill_until IS NULL))
);
CREATE UNIQUE INDEX schedules_id_key ON schedules (id);

-- What was decided about each tick. The key is the second guard against deciding one twice.
CREATE TABLE schedule_ticks (
    schedule_id text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL
        CONSTRAINT schedule_ticks_kind_check CHECK (kind IN ('tick', 'trigger', 'backfill')),
    at          timestamptz NOT NULL,
    project     text COLLATE "C" NOT NULL,
    -- Numbers the decisions of a schedule. The oldest are deleted.
    seq         bigint NOT NULL,
    decision    text COLLATE "C" NOT NULL
        CONSTRAINT schedule_ticks_decision_check CHECK (decision IN ('started', 'waiting', 'skipped', 'missed', 'refused')),
    -- The run that was started, or because of which the tick was skipped; empty for none.
    run_id      text COLLATE "C" NOT NULL,
    reason      text NOT NULL,
    -- A row may stand for several missed ticks, from at to last_at.
    count       bigint NOT NULL,
    last_at     timestamptz NOT NULL,
    decided_at  timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, kind, at)
);
CREATE INDEX schedule_ticks_seq_idx ON schedule_ticks (schedule_id, seq);

-- +goose Down
DROP TABLE schedule_ticks, schedules;
