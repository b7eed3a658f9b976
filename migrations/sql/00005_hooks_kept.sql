-- What the next line of the Workflow SDK adds to hooks: tokens that outlive their run, and resumptions that
-- are recorded once.

-- +goose Up
ALTER TABLE hooks
    ADD COLUMN is_system    boolean NOT NULL DEFAULT false,
    -- Until when the token is to stay taken even if the run ends before.
    ADD COLUMN retain_until timestamptz,
    -- Set by the end of the run to retain_until: the row counts until then. Rows of live runs have none.
    ADD COLUMN expires_at   timestamptz;

CREATE INDEX hooks_expiry_idx ON hooks (expires_at) WHERE expires_at IS NOT NULL;

-- One event per resumption, however often it is sent (protocol §3.8).
CREATE UNIQUE INDEX events_resume_key ON events (run_id, (data ->> 'resumeId'))
    WHERE type = 'hook_received' AND data ->> 'resumeId' IS NOT NULL;

-- +goose Down
DROP INDEX events_resume_key, hooks_expiry_idx;
ALTER TABLE hooks DROP COLUMN is_system, DROP COLUMN retain_until, DROP COLUMN expires_at;
