-- +goose NO TRANSACTION

-- +goose Up

-- Counts the calls of a deployment that are under way.
SET lock_timeout = 0;
DROP INDEX IF EXISTS messages_under_way_idx;
CREATE INDEX CONCURRENTLY messages_under_way_idx
    ON messages (project, deployment_id) WHERE lease > '';
RESET lock_timeout;

-- +goose Down
DROP INDEX messages_under_way_idx;
