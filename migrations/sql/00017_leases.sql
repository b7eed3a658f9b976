-- +goose Up

-- The list of what is under way asks for leases above the empty one, so that its index is of no use to statements that
-- look for one lease. Those are planned when the queue is empty, as queues are now and then, and take an index that has
-- all that is under way for as good as the one of leases; later they would read it from end to end.
CREATE INDEX messages_under_way_idx ON messages (project, id) WHERE lease > '';
DROP INDEX messages_leased_idx;

-- +goose Down
CREATE INDEX messages_leased_idx ON messages (project, id) WHERE lease <> '';
DROP INDEX messages_under_way_idx;
