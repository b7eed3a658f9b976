-- +goose Up

-- The URLs of the deployments' functions.
CREATE TABLE deployments (
    project    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    url        text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id)
);

-- Messages that have not been acknowledged. All times are from the database's clock.
CREATE TABLE messages (
    id             text COLLATE "C" PRIMARY KEY,
    project        text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    deployment_id  text COLLATE "C" NOT NULL,
    -- The run that the sender named; empty if it named none.
    run_id         text COLLATE "C" NOT NULL DEFAULT '',
    content_type   text NOT NULL,
    body           bytea NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    expires_at     timestamptz NOT NULL,
    -- When the message next needs a ticket: its delay is over, its lease has expired, or its ticket was lost.
    due_at         timestamptz NOT NULL,
    -- The ID of the ticket (River job) that may deliver the message; 0 before the first.
    ticket         integer NOT NULL DEFAULT 0,
    -- The receipt handle of the delivery in progress; empty if there is none.
    lease          text COLLATE "C" NOT NULL DEFAULT '',
    delivery_count integer NOT NULL DEFAULT 0,
    last_error     text NOT NULL DEFAULT '',
    -- Set when the message has failed too often: it is kept, and not delivered again until it is released by hand.
    parked_at      timestamptz,
    CONSTRAINT messages_parked_check CHECK (parked_at IS NULL OR lease = '')
) WITH (fillfactor = 70);
CREATE INDEX messages_due_idx ON messages (due_at) WHERE parked_at IS NULL;
CREATE UNIQUE INDEX messages_lease_key ON messages (lease) WHERE lease <> '';
CREATE INDEX messages_deployment_idx ON messages (project, deployment_id);

-- Idempotency keys outlive their message, until their retention ends.
CREATE TABLE message_keys (
    project       text COLLATE "C" NOT NULL,
    deployment_id text COLLATE "C" NOT NULL,
    topic         text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    message_id    text COLLATE "C" NOT NULL,
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (project, deployment_id, topic, key)
);
CREATE INDEX message_keys_expiry_idx ON message_keys (expires_at);

-- +goose Down
DROP TABLE message_keys, messages, deployments;
