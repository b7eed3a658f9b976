-- +goose Up

-- Finds the due messages of one project, and the projects that have any, without reading the messages of others. The
-- table has only messages that are not acknowledged yet, so building the index takes a moment.
CREATE INDEX messages_project_due_idx ON messages (project, due_at) WHERE parked_at IS NULL;

-- +goose Down
DROP INDEX messages_project_due_idx;
