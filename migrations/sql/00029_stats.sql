-- +goose Up

-- How often things happened in a project in an interval, and how long they took. The rows are a fold of the project's
-- events (eventlog/stats). Each event is counted in one interval of each width.
CREATE TABLE stats (
    project  text COLLATE "C" NOT NULL,
    -- How long the interval is, in minutes: a minute, an hour, 6 hours or a day.
    width    smallint NOT NULL,
    -- The type of the events, or a part of it: see the constants in eventlog/stats.
    metric   text COLLATE "C" NOT NULL,
    -- The start of the interval.
    at       timestamptz NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    -- The deployment of a run, the name of a step, or the code of an error.
    label    text COLLATE "C" NOT NULL,
    -- The duration, as a class of a histogram; 0 for what has no duration.
    took     smallint NOT NULL,
    count    bigint NOT NULL,
    PRIMARY KEY (project, width, metric, at, workflow, label, took)
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
    -- When counts that are too old were deleted last.
    pruned_at   timestamptz NOT NULL DEFAULT '-infinity'
);

-- +goose Down
DROP TABLE stats_progress, stats;
