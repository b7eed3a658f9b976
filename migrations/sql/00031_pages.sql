-- +goose Up

-- Lists of the messages that failed and are tried again, of a project and of a deployment. Few messages are in these
-- indexes, and the others do not touch them.
CREATE INDEX messages_failed_idx ON messages (project, id) WHERE parked_at IS NULL AND last_error <> '';
CREATE INDEX messages_failed_at_idx ON messages (project, deployment_id) WHERE parked_at IS NULL AND last_error <> '';

-- The project of a wait's run; empty if a server of the previous version wrote the wait. To fill it in here would lock
-- the table for long, and waits of ended runs are deleted anyway. A constant default rewrites no rows.
ALTER TABLE waits ADD project text COLLATE "C" NOT NULL DEFAULT '';
-- The waits of a project that are not over, by when they end.
CREATE INDEX waits_open_idx ON waits (project, resume_at, run_id, id) WHERE status = 'waiting';

-- How a deployment can be reached. Servers of the previous version do not write this.
ALTER TABLE deployments
    -- When it last answered a call, to the minute.
    ADD answered_at       timestamptz,
    -- When no connection to it was made, or one was closed before an answer, and why.
    ADD failed_at         timestamptz,
    ADD failure           text NOT NULL DEFAULT '',
    -- Since when it has not answered; NULL if it answers.
    ADD unreachable_since timestamptz;

-- +goose Down
ALTER TABLE deployments DROP answered_at, DROP failed_at, DROP failure, DROP unreachable_since;
DROP INDEX waits_open_idx, messages_failed_at_idx, messages_failed_idx;
ALTER TABLE waits DROP project;
