-- The events of a project in an order that is stable over commits, for lists and live streams of all of them.

-- +goose Up
ALTER TABLE events
    ADD COLUMN project text COLLATE "C" NOT NULL DEFAULT 'default',
    -- The transaction that wrote the event, but never less than for the run's previous event. Below the oldest
    -- transaction that is still open nothing more can come, so a reader that stays there misses nothing
    -- (eventlog/feed.go). Events from before this column come first.
    ADD COLUMN xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE events
    ALTER COLUMN project DROP DEFAULT,
    ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
-- Constants cost no rewrite; only what is of other projects is written again.
UPDATE events e SET project = r.project FROM runs r WHERE r.id = e.run_id AND r.project <> 'default';

-- For the events of one type; those of all types are merged, as runs are by status.
CREATE INDEX events_feed_idx ON events (project, type, xid, run_id, seq);

-- +goose Down
DROP INDEX events_feed_idx;
ALTER TABLE events DROP COLUMN project, DROP COLUMN xid;
