-- +goose Up
-- Limits bound how many runs and steps are under way at once, or begin in a time. docs/guarantees.md has the rules.
CREATE TABLE limits (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- So many at once: with one key, and in all; 0 for no bound.
    per_key    integer NOT NULL CONSTRAINT limits_per_key_check CHECK (per_key >= 0),
    total      integer NOT NULL CONSTRAINT limits_total_check CHECK (total >= 0),
    -- So many begin with one key in any window of this length; 0 for no bound.
    rate       integer NOT NULL CONSTRAINT limits_rate_check CHECK (rate >= 0),
    per        interval NOT NULL,
    burst      integer NOT NULL CONSTRAINT limits_burst_check CHECK (burst >= 0),
    -- Whether tenants take turns.
    fair       boolean NOT NULL,
    on_full    text COLLATE "C" NOT NULL
        CONSTRAINT limits_on_full_check CHECK (on_full IN ('wait', 'reject', 'replaceWaiting', 'cancelOldest')),
    paused     boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);

-- What holds a place of a limit, or waits for one. A permit goes with the run and the message that it is about, so it
-- cannot be left behind.
CREATE TABLE permits (
    -- The ID of the run, or of the message with the step, that the permit is for.
    holder     text COLLATE "C" NOT NULL,
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    -- How many places it takes.
    cost       integer NOT NULL CONSTRAINT permits_cost_check CHECK (cost > 0),
    run_id     text COLLATE "C" NOT NULL CONSTRAINT permits_run_id_fkey REFERENCES runs (id) ON DELETE CASCADE,
    -- NULL if the run holds it.
    message_id text COLLATE "C" CONSTRAINT permits_message_id_fkey REFERENCES messages (id) ON DELETE CASCADE,
    -- When it came, and the same less its priority, which orders those who wait.
    created_at timestamptz NOT NULL,
    rank_at    timestamptz NOT NULL,
    -- When it may go at the earliest: the end of a retry's backoff.
    not_before timestamptz,
    -- How many have gone before it while another limit kept it from going.
    passed     integer NOT NULL DEFAULT 0,
    -- When it got its place; NULL while it waits.
    granted_at timestamptz,
    PRIMARY KEY (holder, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX permits_waiting_idx ON permits (project, name, key, rank_at, holder) WHERE granted_at IS NULL;
CREATE INDEX permits_held_idx ON permits (project, name, key) WHERE granted_at IS NOT NULL;
CREATE INDEX permits_run_idx ON permits (run_id);
CREATE INDEX permits_message_idx ON permits (message_id) WHERE message_id IS NOT NULL;

-- What limits remember of a key or a tenant. Rows whose time is long past mean nothing.
CREATE TABLE limit_clocks (
    project text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    -- 'rate': when the key has its whole burst again. 'turn': when the tenant last got a place.
    kind    text COLLATE "C" NOT NULL CONSTRAINT limit_clocks_kind_check CHECK (kind IN ('rate', 'turn')),
    key     text COLLATE "C" NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (project, name, kind, key)
) WITH (fillfactor = 50);
CREATE INDEX limit_clocks_at_idx ON limit_clocks (at);

-- The limits of workflows whose runs do not name them.
CREATE TABLE policies (
    project    text COLLATE "C" NOT NULL,
    workflow   text COLLATE "C" NOT NULL,
    -- A list of limits, with expressions for their keys.
    limits     jsonb NOT NULL,
    priority   interval NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, workflow)
);

-- The limits that the run needs places of, as in its first event; NULL for none.
ALTER TABLE runs ADD limits jsonb;

-- +goose Down
ALTER TABLE runs DROP limits;
DROP TABLE policies, limit_clocks, permits, limits;
