-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_held_idx;
-- Finds the messages that a pause holds, to let them go.
CREATE INDEX CONCURRENTLY messages_held_idx ON messages (held_by, id) WHERE held_by IS NOT NULL;
RESET lock_timeout;
