-- An order of the events of a project that a restore, a dump and a move to another cluster do not break: the numbers of
-- transactions are those of one cluster, and go back when it is restored (pg/epoch.go).

-- +goose Up
CREATE TABLE feed_epochs (
    number     bigint PRIMARY KEY,
    -- What cursors name. It is random, so that another history of this database has others; empty for the cursors of
    -- servers that know no epochs.
    id         text COLLATE "C" NOT NULL UNIQUE,
    -- The cluster and the database, as far as they are known, and when Postgres was started.
    cluster    text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    -- No event of an earlier epoch is at this place or after it, and none of this epoch before it.
    begins     bigint NOT NULL,
    -- What is added to the number of a transaction to get the place of its events.
    base       bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO feed_epochs (number, id, cluster, started_at, begins, base) VALUES (1, '', '', '-infinity', 0, 0);

-- +goose Down
DROP TABLE feed_epochs;
