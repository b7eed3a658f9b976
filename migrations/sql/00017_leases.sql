-- +goose Up

-- The list of messages being delivered selects lease > '', so that statements that look up one lease cannot use its
-- index. Such a statement may be planned while the queue is empty. Postgres then considers that index as good as the
-- one on leases, and would later scan all messages being delivered.
CREATE INDEX messages_under_way_idx ON messages (project, id) WHERE lease > '';
DROP INDEX messages_leased_idx;

-- +goose Down
CREATE INDEX messages_leased_idx ON messages (project, id) WHERE lease <> '';
DROP INDEX messages_under_way_idx;
