-- +goose Up

-- How many positions of the run's log were taken by its orchestrator, for runs of spec version 9 and later. Servers of
-- the previous version have no such runs, and insert without it. A constant default rewrites no rows.
ALTER TABLE runs ADD COLUMN seq_in_band bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE runs DROP COLUMN seq_in_band;
