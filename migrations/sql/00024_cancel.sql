-- +goose Up

-- Runs can be asked to cancel, and end by themselves within a grace. Waits can be cancelled.
--
-- The new constraints allow more than the old ones, so the rows that exist need no check: NOT VALID saves reading them
-- under a lock. New rows are checked all the same.
ALTER DOMAIN event_type DROP CONSTRAINT events_type_check;
ALTER DOMAIN event_type ADD CONSTRAINT events_type_check CHECK (VALUE IN (
    'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'cancel_requested', 'attr_set',
    'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
    'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
    'wait_created', 'wait_completed', 'wait_cancelled')) NOT VALID;

-- When a run that was asked to cancel ends if it has not ended by itself; NULL if nobody has asked.
ALTER TABLE runs ADD forced_at timestamptz;

ALTER TABLE waits
    DROP CONSTRAINT waits_status_check,
    DROP CONSTRAINT waits_completed_at_check,
    ADD CONSTRAINT waits_status_check CHECK (status IN ('waiting', 'completed', 'cancelled')) NOT VALID,
    ADD CONSTRAINT waits_completed_at_check
        CHECK ((status IN ('completed', 'cancelled')) = (completed_at IS NOT NULL)) NOT VALID;

-- +goose Down
ALTER TABLE waits
    DROP CONSTRAINT waits_status_check,
    DROP CONSTRAINT waits_completed_at_check,
    ADD CONSTRAINT waits_status_check CHECK (status IN ('waiting', 'completed')),
    ADD CONSTRAINT waits_completed_at_check CHECK ((status = 'completed') = (completed_at IS NOT NULL));
ALTER TABLE runs DROP forced_at;
ALTER DOMAIN event_type DROP CONSTRAINT events_type_check;
ALTER DOMAIN event_type ADD CONSTRAINT events_type_check CHECK (VALUE IN (
    'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'attr_set',
    'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
    'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
    'wait_created', 'wait_completed'));
