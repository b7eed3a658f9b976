-- An order of all events of a project that later commits do not change, for lists and live streams.

-- +goose Up
ALTER TABLE events
    ADD COLUMN project text COLLATE "C" NOT NULL DEFAULT 'default',
    -- The ID of the transaction that wrote the event, but at least that of the run's previous event. No new events can
    -- appear below the oldest open transaction, so a reader that stays below it misses none
    -- (eventlog/read/feed.go). Events older than this column come first.
    ADD COLUMN xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE events
    ALTER COLUMN project DROP DEFAULT,
    ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
-- A constant default does not rewrite the table. Only events of other projects are updated.
UPDATE events e SET project = r.project FROM runs r WHERE r.id = e.run_id AND r.project <> 'default';

-- For events of one type. Lists of all types merge those of each type, as lists of runs merge statuses.
CREATE INDEX events_feed_idx ON events (project, type, xid, run_id, seq);

-- +goose Down
DROP INDEX events_feed_idx;
ALTER TABLE events DROP COLUMN project, DROP COLUMN xid;
