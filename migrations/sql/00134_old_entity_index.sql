-- +goose Up

-- That of the migration before takes its place.
DROP INDEX events_correlation_idx;

-- +goose Down
CREATE INDEX events_correlation_idx ON events (correlation_id, run_id, seq) WHERE correlation_id <> '';
