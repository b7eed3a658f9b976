-- +goose Up

-- The number of runs grows with the number of rows. Statistics of a small table do not show that: Postgres keeps the
-- number of runs, overestimates the rows of a run when the table has grown, and then plans statements about a run anew
-- at each execution. From the next statistics on, this makes it assume 20 rows per run.
ALTER TABLE events ALTER COLUMN run_id SET (n_distinct = -0.05);
ALTER TABLE steps ALTER COLUMN run_id SET (n_distinct = -0.05);

-- +goose Down
ALTER TABLE events ALTER COLUMN run_id RESET (n_distinct);
ALTER TABLE steps ALTER COLUMN run_id RESET (n_distinct);
