-- +goose Up

-- The stores of runs: the fold of their events of the type store_set. Value is JSON as it was written. It is text, so
-- that Postgres can store all JSON that functions write: json::jsonb refuses some. Seq is the position of the event.
CREATE TABLE run_store (
    run_id text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key    text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    PRIMARY KEY (run_id, key)
);

-- The position of the run's last store_set; 0 for none, so that a run without a store needs no read of the table. A
-- constant default rewrites no rows. Servers of the previous version insert without it.
ALTER TABLE runs ADD COLUMN store_seq bigint NOT NULL DEFAULT 0;

-- NOT VALID saves the scan of the events: every value that was valid still is.
ALTER DOMAIN event_type DROP CONSTRAINT events_type_check;
ALTER DOMAIN event_type ADD CONSTRAINT events_type_check CHECK (VALUE IN (
    'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'cancel_requested', 'attr_set',
    'store_set', 'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
    'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
    'wait_created', 'wait_completed', 'wait_cancelled')) NOT VALID;

-- +goose Down
ALTER DOMAIN event_type DROP CONSTRAINT events_type_check;
ALTER DOMAIN event_type ADD CONSTRAINT events_type_check CHECK (VALUE IN (
    'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'cancel_requested', 'attr_set',
    'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
    'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
    'wait_created', 'wait_completed', 'wait_cancelled')) NOT VALID;
ALTER TABLE runs DROP COLUMN store_seq;
DROP TABLE run_store;
