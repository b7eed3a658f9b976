-- +goose Up

-- How many runs there are grows with the rows of their logs. Postgres does not see that in statistics with few runs to
-- many rows: it keeps the number, and when the table has grown it takes the log of a run for long, and plans the
-- statements about it anew at each execution. This has it take a run for 20 rows, from the next statistics on.
ALTER TABLE events ALTER COLUMN run_id SET (n_distinct = -0.05);
ALTER TABLE steps ALTER COLUMN run_id SET (n_distinct = -0.05);

-- +goose Down
ALTER TABLE events ALTER COLUMN run_id RESET (n_distinct);
ALTER TABLE steps ALTER COLUMN run_id RESET (n_distinct);
