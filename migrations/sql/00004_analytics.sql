-- +goose Up

-- Every list of runs goes by (created_at, id). Where it is not of one status, those of the five are merged, so
-- that two indexes serve all four kinds of list: each is one more write when a run starts and when it ends, the two
-- updates that cannot be HOT for it. What a run leaves in them under its earlier statuses the next list skips and
-- marks, and vacuum removes.
DROP INDEX runs_created_idx, runs_workflow_idx;
CREATE INDEX runs_status_idx ON runs (project, status, created_at, id);
CREATE INDEX runs_workflow_idx ON runs (project, workflow_name, status, created_at, id);

-- The runs' attributes once more, a row each, for lists of runs by attribute and of the attributes there are.
-- What a row repeats of its run never changes.
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
