-- +goose Up

-- Postgres parses a table's CHECK constraints for every statement that writes to it, which was a fifth of the cost of
-- an append. It parses a domain's constraints once per connection. So the enum columns that every append writes have
-- domains. Constraints on two columns cannot move to a domain; theirs compare with one array constant, which is parsed
-- faster than a list.
--
-- The domains get their constraints last, because changing a column to a constrained domain rewrites the table. This
-- way only partial indexes of events are rebuilt.
CREATE DOMAIN event_type AS text;
CREATE DOMAIN run_status AS text;
CREATE DOMAIN run_driver AS text COLLATE "C";
CREATE DOMAIN step_status AS text;

ALTER TABLE events
    DROP CONSTRAINT events_type_check,
    ALTER COLUMN type TYPE event_type;
ALTER TABLE runs
    DROP CONSTRAINT runs_status_check,
    DROP CONSTRAINT runs_driver_check,
    DROP CONSTRAINT runs_completed_at_check,
    ALTER COLUMN status TYPE run_status,
    ALTER COLUMN driver TYPE run_driver,
    ADD CONSTRAINT runs_completed_at_check
        CHECK ((status = ANY ('{completed,failed,cancelled}'::text[])) = (completed_at IS NOT NULL));
ALTER TABLE steps
    DROP CONSTRAINT steps_status_check,
    DROP CONSTRAINT steps_completed_at_check,
    ALTER COLUMN status TYPE step_status,
    ADD CONSTRAINT steps_completed_at_check
        CHECK ((status = ANY ('{completed,failed}'::text[])) = (completed_at IS NOT NULL));

ALTER DOMAIN event_type ADD CONSTRAINT events_type_check CHECK (VALUE IN (
    'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'attr_set',
    'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
    'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
    'wait_created', 'wait_completed'));
ALTER DOMAIN run_status ADD CONSTRAINT runs_status_check
    CHECK (VALUE IN ('pending', 'running', 'completed', 'failed', 'cancelled'));
ALTER DOMAIN run_driver ADD CONSTRAINT runs_driver_check CHECK (VALUE IN ('', 'server'));
ALTER DOMAIN step_status ADD CONSTRAINT steps_status_check
    CHECK (VALUE IN ('pending', 'running', 'completed', 'failed'));

-- Changing the type dropped the columns' statistics. Empty tables must not get any: the planner would assume that they
-- stay empty.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM runs) THEN
        ANALYZE events (type), runs (status, driver), steps (status);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE steps
    DROP CONSTRAINT steps_completed_at_check,
    ALTER COLUMN status TYPE text,
    ADD CONSTRAINT steps_status_check CHECK (status IN ('pending', 'running', 'completed', 'failed')),
    ADD CONSTRAINT steps_completed_at_check CHECK ((status IN ('completed', 'failed')) = (completed_at IS NOT NULL));
ALTER TABLE runs
    DROP CONSTRAINT runs_completed_at_check,
    ALTER COLUMN status TYPE text,
    ALTER COLUMN driver TYPE text COLLATE "C",
    ADD CONSTRAINT runs_status_check CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled')),
    ADD CONSTRAINT runs_driver_check CHECK (driver IN ('', 'server')),
    ADD CONSTRAINT runs_completed_at_check
        CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL));
ALTER TABLE events
    ALTER COLUMN type TYPE text,
    ADD CONSTRAINT events_type_check CHECK (type IN (
        'run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled', 'attr_set',
        'step_created', 'step_started', 'step_completed', 'step_failed', 'step_retrying',
        'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
        'wait_created', 'wait_completed'));
DROP DOMAIN event_type, run_status, run_driver, step_status;
