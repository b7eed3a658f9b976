-- What projects share with those who sign requests to their webhooks.

-- +goose Up
CREATE TABLE secrets (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- All that are good now: more than one while a secret is being replaced. HMAC needs them as they are.
    values     text[] NOT NULL CONSTRAINT secrets_values_check CHECK (cardinality(values) BETWEEN 1 AND 10),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);

-- +goose Down
DROP TABLE secrets;
