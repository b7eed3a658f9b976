-- +goose Up

-- Until when the function that works on a message has said that it does; see queue.KeepLease. Servers of the previous
-- version extend the lease instead.
ALTER TABLE messages ADD COLUMN kept_until timestamptz;

-- +goose Down
ALTER TABLE messages DROP COLUMN kept_until;
