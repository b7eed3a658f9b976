-- Hooks of the next major version of the Workflow SDK: tokens that outlive their run, and resumptions that are recorded
-- once.

-- +goose Up
ALTER TABLE hooks
    ADD COLUMN is_system    boolean NOT NULL DEFAULT false,
    -- Until when the token stays reserved, even if the run ends earlier.
    ADD COLUMN retain_until timestamptz,
    -- Set to retain_until when the run ends: the row is valid until then. NULL while the run is live.
    ADD COLUMN expires_at   timestamptz;

CREATE INDEX hooks_expiry_idx ON hooks (expires_at) WHERE expires_at IS NOT NULL;

-- One event per resumption, however often it is sent (protocol §3.8).
CREATE UNIQUE INDEX events_resume_key ON events (run_id, (data ->> 'resumeId'))
    WHERE type = 'hook_received' AND data ->> 'resumeId' IS NOT NULL;

-- +goose Down
DROP INDEX events_resume_key, hooks_expiry_idx;
ALTER TABLE hooks DROP COLUMN is_system, DROP COLUMN retain_until, DROP COLUMN expires_at;
