-- +goose NO TRANSACTION

-- +goose Up

-- Finds the events of a step, hook or wait, whether or not the run is known. It leaves out their positions, which are
-- sorted where they are read: so the events of an entity share one entry, and the index takes half of what
-- events_correlation_idx does, which the next migration drops. It is built beside writers.
SET lock_timeout = 0;
DROP INDEX IF EXISTS events_entity_idx;
CREATE INDEX CONCURRENTLY events_entity_idx ON events (correlation_id, run_id) WHERE correlation_id <> '';
RESET lock_timeout;

-- +goose Down
DROP INDEX events_entity_idx;
