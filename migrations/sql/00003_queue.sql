-- +goose Up

-- Where the functions of a deployment are.
CREATE TABLE deployments (
    project    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    url        text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id)
);

-- A row is a message that has not been acknowledged yet. All its times are the database's clock.
CREATE TABLE messages (
    id             text COLLATE "C" PRIMARY KEY,
    project        text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    deployment_id  text COLLATE "C" NOT NULL,
    -- The run the sender said it is about; empty when it did not say.
    run_id         text COLLATE "C" NOT NULL DEFAULT '',
    content_type   text NOT NULL,
    body           bytea NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    expires_at     timestamptz NOT NULL,
    -- When the message next wants a ticket: its delay is over, its lease has run out, or its ticket got lost.
    due_at         timestamptz NOT NULL,
    -- The number of the ticket (River job) that may deliver it; 0 before the first.
    ticket         integer NOT NULL DEFAULT 0,
    -- The receipt handle of the delivery under way; empty when there is none.
    lease          text COLLATE "C" NOT NULL DEFAULT '',
    delivery_count integer NOT NULL DEFAULT 0,
    last_error     text NOT NULL DEFAULT '',
    -- Set when the message failed too often: it is kept, and not delivered again until someone says so.
    parked_at      timestamptz,
    CONSTRAINT messages_parked_check CHECK (parked_at IS NULL OR lease = '')
) WITH (fillfactor = 70);
CREATE INDEX messages_due_idx ON messages (due_at) WHERE parked_at IS NULL;
CREATE UNIQUE INDEX messages_lease_key ON messages (lease) WHERE lease <> '';
CREATE INDEX messages_deployment_idx ON messages (project, deployment_id);

-- Idempotency keys outlive the message they came with, until their retention is over.
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
