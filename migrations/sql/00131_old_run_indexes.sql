-- Those of the three migrations before take their places. Dropping an index locks the table for a moment, however large
-- it is.

-- +goose Up
DROP INDEX runs_status_idx, runs_workflow_idx, runs_ended_idx;

-- +goose Down
CREATE INDEX runs_status_idx ON runs (project, status, created_at, id);
CREATE INDEX runs_workflow_idx ON runs (project, workflow_name, status, created_at, id);
CREATE INDEX runs_ended_idx ON runs (project, completed_at, id) WHERE completed_at IS NOT NULL;
