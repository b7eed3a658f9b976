-- +goose Up
-- origins are where HTTP steps may send the secret to, such as https://mail.example.com; none by default.
ALTER TABLE secrets ADD COLUMN origins text[] NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE secrets DROP COLUMN origins;
