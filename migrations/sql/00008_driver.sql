-- Runs that the server continues by itself, whose functions are plain HTTP endpoints.

-- +goose Up
ALTER TABLE runs
    -- Who continues the run: its client with messages of its own, or the server with the work below.
    ADD driver          text COLLATE "C" NOT NULL DEFAULT ''
        CONSTRAINT runs_driver_check CHECK (driver IN ('', 'server')),
    -- Of the live runs of a workflow only one has this key.
    ADD unique_key      text COLLATE "C" NOT NULL DEFAULT '',
    ADD idempotency_key text COLLATE "C" NOT NULL DEFAULT '',
    -- The run that started this one, and which of its steps waits for the result, if one does.
    ADD parent_id       text COLLATE "C" NOT NULL DEFAULT '',
    ADD parent_step     text COLLATE "C" NOT NULL DEFAULT '',
    -- The run goes on when its parent ends.
    ADD detached        boolean NOT NULL DEFAULT false,
    -- When the run fails if it has not ended.
    ADD deadline        timestamptz;
CREATE UNIQUE INDEX runs_unique_key ON runs (project, workflow_name, unique_key)
    WHERE unique_key <> '' AND completed_at IS NULL;
CREATE UNIQUE INDEX runs_idempotency_key ON runs (project, idempotency_key) WHERE idempotency_key <> '';
CREATE INDEX runs_parent_idx ON runs (parent_id, id) WHERE parent_id <> '';

ALTER TABLE messages
    -- What the server itself has to do; empty for what is delivered as it is.
    ADD work    text COLLATE "C" NOT NULL DEFAULT '',
    -- What of the run the work is about: a step, a hook.
    ADD subject text COLLATE "C" NOT NULL DEFAULT '',
    -- There is news that the work under way has not seen.
    ADD again   boolean NOT NULL DEFAULT false;
-- Each piece of work is there once.
CREATE UNIQUE INDEX messages_work_key ON messages (run_id, work, subject) WHERE work <> '';

ALTER TABLE hooks
    -- The signal that resumes the hook, and the condition on it.
    ADD signal    text COLLATE "C" NOT NULL DEFAULT '',
    ADD condition text NOT NULL DEFAULT '';
CREATE INDEX hooks_signal_idx ON hooks (project, signal, run_id, id) WHERE signal <> '';
-- Outsiders who come with a token name no project.
CREATE INDEX hooks_webhook_idx ON hooks (token) WHERE is_webhook;

-- +goose Down
DROP INDEX hooks_webhook_idx, hooks_signal_idx, messages_work_key;
ALTER TABLE hooks DROP signal, DROP condition;
ALTER TABLE messages DROP work, DROP subject, DROP again;
DROP INDEX runs_unique_key, runs_idempotency_key, runs_parent_idx;
ALTER TABLE runs DROP driver, DROP unique_key, DROP idempotency_key, DROP parent_id, DROP parent_step, DROP detached,
    DROP deadline;
