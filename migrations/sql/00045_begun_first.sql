-- +goose NO TRANSACTION

-- +goose Up

-- Set as long as the message is for a run that has not begun. Such messages get tickets after all others that are due.
ALTER TABLE messages ADD COLUMN IF NOT EXISTS begins_run boolean NOT NULL DEFAULT false;

-- Finds the due messages of one project that belong to runs that have begun, or to those that have not.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_begun_due_idx;
CREATE INDEX CONCURRENTLY messages_begun_due_idx
    ON messages (project, begins_run, due_at) WHERE parked_at IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_begun_due_idx;
ALTER TABLE messages DROP COLUMN begins_run;
