-- Runs that were archived and deleted stay listed, so that they can be found (eventlog/archive).

-- +goose Up
-- Their rows as they were. A migration that changes the columns of runs changes these too.
CREATE TABLE archived_runs (
    LIKE runs,
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);
CREATE INDEX archived_runs_created_idx ON archived_runs (project, created_at, id);
CREATE INDEX archived_runs_key_idx ON archived_runs (project, unique_key, created_at, id) WHERE unique_key <> '';
CREATE INDEX archived_runs_archived_idx ON archived_runs (archived_at);

CREATE TABLE archived_attributes (
    run_id text COLLATE "C" NOT NULL REFERENCES archived_runs(id) ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX archived_attributes_value_idx ON archived_attributes (project, key, value, created_at, run_id);

-- +goose Down
DROP TABLE archived_attributes;
DROP TABLE archived_runs;
