-- +goose Up

-- Set as long as the message is for a run that has not begun. Such messages get tickets after all others that are due.
ALTER TABLE messages ADD COLUMN begins_run boolean NOT NULL DEFAULT false;

-- Finds the due messages of one project that belong to runs that have begun, or to those that have not. The table has
-- only messages that are not acknowledged yet, so building the index takes a moment.
CREATE INDEX messages_begun_due_idx ON messages (project, begins_run, due_at) WHERE parked_at IS NULL;

-- +goose Down
DROP INDEX messages_begun_due_idx;
ALTER TABLE messages DROP COLUMN begins_run;
