-- +goose Up

-- What is left of what the run's function waits for; see entities/await. NULL if all news has the run invoked. It is
-- not in the log: a run that loses it is invoked more often, and misses nothing.
ALTER TABLE runs ADD await jsonb;

-- +goose Down
ALTER TABLE runs DROP await;
