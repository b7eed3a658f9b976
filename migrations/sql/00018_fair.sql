-- +goose Up

-- Finds the due messages of one project, and the projects that have any, without reading the messages of others.
CREATE INDEX messages_project_due_idx ON messages (project, due_at) WHERE parked_at IS NULL;

-- +goose Down
DROP INDEX messages_project_due_idx;
