-- events_xid_idx takes its place. Dropping an index locks the table for a moment, however large it is.

-- +goose Up
DROP INDEX events_feed_idx;

-- +goose Down
CREATE INDEX events_feed_idx ON events (project, type, xid, run_id, seq);
