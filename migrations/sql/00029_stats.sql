-- +goose Up

-- How often things happened in a project in a minute, an hour or a day, and how long they took. The rows are a fold of
-- the project's events (eventlog/stats).
CREATE TABLE stats (
    project  text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    -- The type of the events, or a part of it: see the constants in eventlog/stats.
    metric   text COLLATE "C" NOT NULL,
    -- The deployment of a run, the name of a step, or the code of an error.
    label    text COLLATE "C" NOT NULL,
    -- The start of the minute, hour or day.
    at       timestamptz NOT NULL,
    -- The duration, as a class of a histogram; 0 for what has no duration.
    took     smallint NOT NULL,
    count    bigint NOT NULL,
    PRIMARY KEY (project, at, metric, workflow, label, took)
);

-- How far the events of each project are counted.
CREATE TABLE stats_progress (
    project     text COLLATE "C" PRIMARY KEY,
    -- The last event counted, in the order of the project's events.
    xid         xid8 NOT NULL DEFAULT '0',
    run_id      text COLLATE "C" NOT NULL DEFAULT '',
    seq         bigint NOT NULL DEFAULT 0,
    -- The events before this time are counted.
    complete_to timestamptz NOT NULL DEFAULT '-infinity',
    -- Minutes before this time are merged into hours, and hours before days_to into days.
    hours_to    timestamptz NOT NULL DEFAULT '-infinity',
    days_to     timestamptz NOT NULL DEFAULT '-infinity'
);

-- +goose Down
DROP TABLE stats_progress, stats;
