-- +goose Up

-- How long a project's runs are kept after they end. A project without a row has the server's default.
CREATE TABLE retention (
    project text COLLATE "C" PRIMARY KEY,
    -- NULL keeps them for ever.
    keep    interval CONSTRAINT retention_keep_check CHECK (keep > '0')
);

CREATE INDEX runs_ended_idx ON runs (project, completed_at, id) WHERE completed_at IS NOT NULL;

-- Reuse the space of deleted rows early: by default, vacuum waits until a fifth of the table is dead.
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE steps SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE stream_chunks SET (autovacuum_vacuum_scale_factor = 0.02);

-- +goose Down
ALTER TABLE stream_chunks RESET (autovacuum_vacuum_scale_factor);
ALTER TABLE steps RESET (autovacuum_vacuum_scale_factor);
ALTER TABLE events RESET (autovacuum_vacuum_scale_factor);
DROP INDEX runs_ended_idx;
DROP TABLE retention;
