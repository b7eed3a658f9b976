-- +goose Up
-- The outputs of steps that equal steps have instead of an execution. An output is in the log of its run, and is known
-- for as long as that exists. Times are from the database's clock.
CREATE TABLE memos (
    project    text COLLATE "C" NOT NULL,
    -- The digest of what makes steps equal.
    hash       text COLLATE "C" NOT NULL,
    -- The step_completed with the output.
    run_id     text COLLATE "C" NOT NULL CONSTRAINT memos_run_id_fkey REFERENCES runs (id) ON DELETE CASCADE,
    seq        bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project, hash)
) WITH (fillfactor = 90);
CREATE INDEX memos_run_idx ON memos (run_id);
CREATE INDEX memos_expires_idx ON memos (expires_at);

-- +goose Down
DELETE FROM limits WHERE name = 'memo/share';
DROP TABLE memos;
