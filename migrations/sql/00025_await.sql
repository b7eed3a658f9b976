-- +goose Up

-- What is left of what the run's function waits for; see entities/await. NULL if all news has the run invoked. It is
-- not in the log: a run that loses it is invoked more often, and misses nothing.
ALTER TABLE runs ADD await jsonb;

-- The code and message with which the run's function refuses to go on; NULL for other failures, and for none.
ALTER TABLE messages ADD held jsonb;

-- +goose Down
ALTER TABLE messages DROP held;
ALTER TABLE runs DROP await;
