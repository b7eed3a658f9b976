-- +goose Up
-- Runs, workflows and deployments that are paused: nothing of them is called. Messages for them wait, and name the
-- pause that holds them.
CREATE TABLE pauses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'workflow', 'deployment')),
    -- The ID of the run or deployment, or the name of the workflow.
    name text COLLATE "C" NOT NULL,
    note text NOT NULL DEFAULT '',
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    -- Set when it is over, until no message is left that it has held.
    resumed_at timestamptz
);
CREATE UNIQUE INDEX pauses_key ON pauses (project, kind, name) WHERE resumed_at IS NULL;
CREATE INDEX pauses_resumed_idx ON pauses (id) WHERE resumed_at IS NOT NULL;
-- The pause that holds the message; NULL for none. See package queue/hold.
ALTER TABLE messages ADD COLUMN held_by bigint;
