-- +goose NO TRANSACTION

-- +goose Up

-- Finds the messages that wait for an app which asks for its deliveries, and those that an app did not get while it was
-- away. Few are in this index.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_unreached_idx;
CREATE INDEX CONCURRENTLY messages_unreached_idx
    ON messages (project, deployment_id, due_at) WHERE unreached > 0 AND lease = '' AND parked_at IS NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_unreached_idx;
