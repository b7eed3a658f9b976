-- +goose Up

-- Lists of runs are ordered by (created_at, id). A list of all statuses merges those of the five statuses, so two
-- indexes serve all four kinds of lists. Each index costs one more write when a run starts and when it ends, which are
-- the two updates that cannot be HOT because of it. Index entries of a run's earlier statuses are skipped and marked
-- dead by the next list, and removed by vacuum.
DROP INDEX runs_created_idx, runs_workflow_idx;
CREATE INDEX runs_status_idx ON runs (project, status, created_at, id);
CREATE INDEX runs_workflow_idx ON runs (project, workflow_name, status, created_at, id);

-- The attributes of runs again, one row each, for lists of runs by attribute and for lists of attributes. The columns
-- copied from the run never change.
CREATE TABLE run_attributes (
    run_id        text COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key           text COLLATE "C" NOT NULL,
    value         text COLLATE "C" NOT NULL,
    project       text COLLATE "C" NOT NULL,
    workflow_name text COLLATE "C" NOT NULL,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
INSERT INTO run_attributes (run_id, key, value, project, workflow_name, created_at)
SELECT r.id, a.key, a.value, r.project, r.workflow_name, r.created_at
FROM runs r, jsonb_each_text(r.attributes) a;
CREATE INDEX run_attributes_value_idx ON run_attributes (project, key, value, created_at, run_id);
CREATE INDEX run_attributes_key_idx ON run_attributes (project, key, created_at);
CREATE INDEX run_attributes_workflow_idx ON run_attributes (project, workflow_name, key, created_at);

-- +goose Down
DROP TABLE run_attributes;
DROP INDEX runs_status_idx, runs_workflow_idx;
CREATE INDEX runs_created_idx ON runs (project, created_at, id);
CREATE INDEX runs_workflow_idx ON runs (project, workflow_name, created_at, id);
