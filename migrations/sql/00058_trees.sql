-- +goose Up
-- Runs that other runs have started, whichever way, know the root of their tree and how far below it they are. Those of
-- before count as roots.
ALTER TABLE runs ADD COLUMN root_id text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN depth integer NOT NULL DEFAULT 0;
-- Those that a signal starts, too: the run that has sent it.
ALTER TABLE signals ADD COLUMN root_id text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN depth integer NOT NULL DEFAULT 0;

ALTER TABLE projects
    ADD COLUMN max_depth bigint CONSTRAINT projects_max_depth_check CHECK (max_depth >= 0),
    ADD COLUMN max_descendants bigint CONSTRAINT projects_max_descendants_check CHECK (max_descendants >= 0),
    ADD COLUMN paused_at timestamptz;

-- +goose Down
ALTER TABLE projects DROP COLUMN paused_at, DROP COLUMN max_descendants, DROP COLUMN max_depth;
ALTER TABLE signals DROP COLUMN depth, DROP COLUMN root_id;
ALTER TABLE runs DROP COLUMN depth, DROP COLUMN root_id;
