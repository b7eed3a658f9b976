-- +goose Up

-- Heartbeats of the step's function; see queue.Beat. No index has these columns, so they are cheap to write.
ALTER TABLE messages
    -- When the last one came; a pause before the call began if none has come.
    ADD COLUMN beat_at timestamptz,
    -- How long the function may be silent; NULL if it need not say that it works.
    ADD COLUMN beat_timeout interval,
    -- What the function last said about how far it is: JSON, for the next attempt.
    ADD COLUMN progress bytea;
