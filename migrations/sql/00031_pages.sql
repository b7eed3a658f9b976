-- +goose Up

-- The project of a wait's run; empty if a server of the previous version wrote the wait. To fill it in here would lock
-- the table for long, and waits of ended runs are deleted anyway. A constant default rewrites no rows.
ALTER TABLE waits ADD project text COLLATE "C" NOT NULL DEFAULT '';

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
ALTER TABLE waits DROP project;
