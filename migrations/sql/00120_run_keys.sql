-- Payloads of a run can be encrypted by a key of the run, so that this alone can be destroyed.

-- +goose Up
-- Whether what the key encrypts for a run is encrypted by a key that follows from it and the run's secret.
ALTER TABLE data_keys ADD COLUMN per_run boolean NOT NULL DEFAULT false;

CREATE TABLE run_keys (
    -- The run may not exist yet, or not any more.
    run_id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    -- Random; NULL once it is destroyed. It is good for nothing without the project's data key.
    secret bytea CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    shredded_at timestamptz,
    -- Since when the run is in an archive only, from which it can be imported.
    archived_at timestamptz,
    CONSTRAINT run_keys_shredded_check CHECK ((secret IS NULL) = (shredded_at IS NOT NULL))
);
CREATE INDEX run_keys_shredded_idx ON run_keys (shredded_at) WHERE shredded_at IS NOT NULL;

-- +goose Down
DROP TABLE run_keys;
ALTER TABLE data_keys DROP COLUMN per_run;
