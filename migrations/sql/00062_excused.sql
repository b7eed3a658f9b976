-- +goose Up

-- Number of deliveries that are no failures, although the function has got them: those up to the last one after which
-- it asked for the message again, and those that ended with their server. The count of deliveries stays exact.
ALTER TABLE messages ADD excused integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE messages DROP excused;
