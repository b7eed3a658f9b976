-- +goose Up

-- Only a step_created makes a step, and the key of events gives each position to one event. Lists find the steps of a run
-- by the key of their table, and sort them.
DROP INDEX steps_created_key;

-- +goose Down
CREATE UNIQUE INDEX steps_created_key ON steps (run_id, created_seq);
