-- +goose Up

-- The files of archived runs, where the database is the archive (eventlog/archive). A file goes with the run's row in the
-- list.
CREATE TABLE archive_files (
    run_id text COLLATE "C" NOT NULL REFERENCES archived_runs(id) ON DELETE CASCADE,
    -- A random number for each export of the run. Only one that has its last part is read, and it replaces those before it.
    file bigint NOT NULL,
    -- From 0. Parts are short, so that no statement has the whole of a long file.
    part integer NOT NULL,
    last boolean NOT NULL,
    project text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run_id, file, part)
);
-- It is compressed.
ALTER TABLE archive_files ALTER COLUMN data SET STORAGE EXTERNAL;

-- +goose Down
DROP TABLE archive_files;
