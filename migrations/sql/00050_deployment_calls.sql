-- +goose NO TRANSACTION

-- +goose Up

-- How many calls of a deployment's functions may be under way at once; NULL for any number.
ALTER TABLE deployments ADD COLUMN IF NOT EXISTS max_concurrent integer;

-- Since when a message waits until its deployment may be called; NULL if it does not.
ALTER TABLE messages ADD COLUMN IF NOT EXISTS awaits_since timestamptz;

-- Finds who is next at a deployment. Few messages wait so.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_awaiting_idx;
CREATE INDEX CONCURRENTLY messages_awaiting_idx
    ON messages (project, deployment_id, awaits_since, id) WHERE awaits_since IS NOT NULL AND parked_at IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_awaiting_idx;
ALTER TABLE messages DROP COLUMN awaits_since;
ALTER TABLE deployments DROP COLUMN max_concurrent;
