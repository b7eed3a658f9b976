-- A fork begins with the first events of another run: of which one, and how many.

-- +goose Up
ALTER TABLE runs ADD COLUMN fork_of text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN fork_seq bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE runs DROP COLUMN fork_of;
ALTER TABLE runs DROP COLUMN fork_seq;
