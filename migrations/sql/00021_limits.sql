-- +goose Up

-- What operators allow projects. All columns are empty for a project without limits.
ALTER TABLE projects
    -- The most runs started in a day, in UTC, and the most bytes stored; NULL for no limit.
    ADD daily_starts   bigint CONSTRAINT projects_daily_starts_check CHECK (daily_starts >= 0),
    ADD storage_bytes  bigint CONSTRAINT projects_storage_bytes_check CHECK (storage_bytes >= 0),
    -- The runs started on the day counted_on that retention has deleted since, which counting runs would miss.
    ADD deleted_starts bigint NOT NULL DEFAULT 0,
    ADD counted_on     date,
    -- The last measurement of the bytes stored, and when the next one is due; NULL for at once.
    ADD stored_bytes   bigint,
    ADD stored_at      timestamptz,
    ADD measure_after  timestamptz;

-- +goose Down
ALTER TABLE projects
    DROP daily_starts, DROP storage_bytes, DROP deleted_starts, DROP counted_on, DROP stored_bytes, DROP stored_at,
    DROP measure_after;
