-- Runs that the server drives, whose functions are plain HTTP endpoints.

-- +goose Up
ALTER TABLE runs
    -- Who drives the run: empty for its client, with messages of its own; "server" for the server, with the work below.
    ADD driver          text COLLATE "C" NOT NULL DEFAULT ''
        CONSTRAINT runs_driver_check CHECK (driver IN ('', 'server')),
    -- Unique among the live runs of a workflow.
    ADD unique_key      text COLLATE "C" NOT NULL DEFAULT '',
    ADD idempotency_key text COLLATE "C" NOT NULL DEFAULT '',
    -- The run that started this one, and the step in it that waits for the result; empty if there is none.
    ADD parent_id       text COLLATE "C" NOT NULL DEFAULT '',
    ADD parent_step     text COLLATE "C" NOT NULL DEFAULT '',
    -- The run continues when its parent ends.
    ADD detached        boolean NOT NULL DEFAULT false,
    -- When the run fails if it has not ended by then.
    ADD deadline        timestamptz;
CREATE UNIQUE INDEX runs_unique_key ON runs (project, workflow_name, unique_key)
    WHERE unique_key <> '' AND completed_at IS NULL;
CREATE UNIQUE INDEX runs_idempotency_key ON runs (project, idempotency_key) WHERE idempotency_key <> '';
CREATE INDEX runs_parent_idx ON runs (parent_id, id) WHERE parent_id <> '';

ALTER TABLE messages
    -- The kind of work that the server does itself; empty for a message that it delivers.
    ADD work    text COLLATE "C" NOT NULL DEFAULT '',
    -- The step or hook of the run that the work is for.
    ADD subject text COLLATE "C" NOT NULL DEFAULT '',
    -- Events arrived after the work in progress began: do it again.
    ADD again   boolean NOT NULL DEFAULT false;
-- The same work is queued only once.
CREATE UNIQUE INDEX messages_work_key ON messages (run_id, work, subject) WHERE work <> '';

ALTER TABLE hooks
    -- The signal that resumes the hook, and the condition that the signal must meet.
    ADD signal    text COLLATE "C" NOT NULL DEFAULT '',
    ADD condition text NOT NULL DEFAULT '';
CREATE INDEX hooks_signal_idx ON hooks (project, signal, run_id, id) WHERE signal <> '';
-- Finds a webhook by its token alone: callers do not name the project.
CREATE INDEX hooks_webhook_idx ON hooks (token) WHERE is_webhook;

-- +goose Down
DROP INDEX hooks_webhook_idx, hooks_signal_idx, messages_work_key;
ALTER TABLE hooks DROP signal, DROP condition;
ALTER TABLE messages DROP work, DROP subject, DROP again;
DROP INDEX runs_unique_key, runs_idempotency_key, runs_parent_idx;
ALTER TABLE runs DROP driver, DROP unique_key, DROP idempotency_key, DROP parent_id, DROP parent_step, DROP detached,
    DROP deadline;
