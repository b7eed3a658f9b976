-- Streams that belong to a run, which its functions write: how large they are, and how far each of their writers is.

-- +goose Up
-- The bytes that functions have written; 0 for other streams, which have no limit.
ALTER TABLE streams ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
CREATE TABLE stream_writers (
    stream_id bigint NOT NULL REFERENCES streams(id) ON DELETE CASCADE,
    -- The ID of the step that writes; empty for the run's function itself.
    writer text COLLATE "C" NOT NULL,
    -- The attempt that has written last. Empty for the run's function, whose calls go on with each other.
    attempt text COLLATE "C" NOT NULL,
    -- What the attempt writes next has this index: what has a lower one is there already.
    next bigint NOT NULL,
    PRIMARY KEY (stream_id, writer)
);

-- +goose Down
DROP TABLE stream_writers;
ALTER TABLE streams DROP COLUMN bytes;
