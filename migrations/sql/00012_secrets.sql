-- Secrets that projects share with the senders of signed webhook requests.

-- +goose Up
CREATE TABLE secrets (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- All valid values: more than one while a secret is being rotated. In plain text, because HMAC needs it.
    values     text[] NOT NULL CONSTRAINT secrets_values_check CHECK (cardinality(values) BETWEEN 1 AND 10),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);

-- +goose Down
DROP TABLE secrets;
