-- +goose NO TRANSACTION

-- +goose Up

-- Lists the messages that are held. Few are.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_held_idx;
CREATE INDEX CONCURRENTLY messages_held_idx
    ON messages (project, id) WHERE held IS NOT NULL;
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_held_idx;
