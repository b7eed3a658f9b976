-- The schema of release 0.1, in one step. It has the number of the last of the steps that led to it: a database with all
-- of them has this schema.
--
-- Texts that are compared or ordered have the collation "C". IDs sort in the order in which they were made.

-- +goose Up

-- Postgres parses a table's CHECK constraints for every statement that writes to it, which was a fifth of the cost of
-- an append. It parses a domain's constraints once per connection. So the enum columns that every append writes have
-- domains. Constraints on two columns cannot move to a domain; theirs compare with one array constant, which is parsed
-- faster than a list.
CREATE DOMAIN event_type AS text
    CONSTRAINT events_type_check
        CHECK (VALUE IN ('run_created', 'run_started', 'run_completed', 'run_failed', 'run_cancelled',
            'cancel_requested', 'attr_set', 'store_set', 'step_created', 'step_started', 'step_completed',
            'step_failed', 'step_retrying', 'hook_created', 'hook_received', 'hook_disposed', 'hook_conflict',
            'wait_created', 'wait_completed', 'wait_cancelled'));

CREATE DOMAIN run_driver AS text COLLATE "C"
    CONSTRAINT runs_driver_check CHECK (VALUE IN ('', 'server'));

CREATE DOMAIN run_status AS text
    CONSTRAINT runs_status_check CHECK (VALUE IN ('pending', 'running', 'completed', 'failed', 'cancelled'));

CREATE DOMAIN step_status AS text
    CONSTRAINT steps_status_check CHECK (VALUE IN ('pending', 'running', 'completed', 'failed'));

-- ===== The log

-- Projects are isolated from each other.
CREATE TABLE projects (
    name text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- What operators allow a project: the most runs started in a day, in UTC, and the most bytes stored. NULL for no
    -- limit.
    daily_starts bigint CHECK (daily_starts >= 0),
    storage_bytes bigint CHECK (storage_bytes >= 0),
    -- The runs started on the day counted_on that retention has deleted since, which counting runs would miss.
    deleted_starts bigint NOT NULL DEFAULT 0,
    counted_on date,
    -- The last measurement of the bytes stored, and when the next one is due; NULL for at once.
    stored_bytes bigint,
    stored_at timestamptz,
    measure_after timestamptz,
    -- How deep a tree of runs that start runs may be, and how many runs of one tree may be open; NULL for the defaults.
    max_depth bigint CHECK (max_depth >= 0),
    max_descendants bigint CHECK (max_descendants >= 0),
    -- Since when nothing of the project starts or is called; NULL if it is not paused.
    paused_at timestamptz
);
INSERT INTO projects (name) VALUES ('default');

-- A run is the fold of its events: every column except id and project can be computed from them.
CREATE TABLE runs (
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    deployment_id text NOT NULL,
    workflow_name text COLLATE "C" NOT NULL,
    status run_status NOT NULL,
    spec_version integer NOT NULL,
    attributes jsonb NOT NULL DEFAULT '{}',
    error_code text NOT NULL DEFAULT '',
    last_seq bigint NOT NULL CHECK (last_seq >= 1),
    -- seq of the event that ended the run; its payload is the output or the error. 0 while the run is live.
    end_seq bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    started_at timestamptz,
    completed_at timestamptz,
    -- Who drives the run: empty for its client, with messages of its own; "server" for the server, with messages of
    -- work.
    driver run_driver NOT NULL DEFAULT '',
    -- Unique among the live runs of a workflow.
    unique_key text COLLATE "C" NOT NULL DEFAULT '',
    idempotency_key text COLLATE "C" NOT NULL DEFAULT '',
    -- The run that started this one, and the step in it that waits for the result; empty if there is none.
    parent_id text COLLATE "C" NOT NULL DEFAULT '',
    parent_step text COLLATE "C" NOT NULL DEFAULT '',
    -- The run continues when its parent ends.
    detached boolean NOT NULL DEFAULT false,
    -- When the run fails if it has not ended by then.
    deadline timestamptz,
    -- When a run that was asked to cancel ends if it has not ended by itself; NULL if nobody has asked.
    forced_at timestamptz,
    -- What is left of what the run's function waits for; see entities/await. NULL if each event that may wake the run does. It
    -- is not in the log: a run that loses it is invoked more often, and misses nothing.
    await jsonb,
    -- The position of the run's last store_set; 0 for none, so that a run without a store needs no read of the table.
    store_seq bigint NOT NULL DEFAULT 0,
    -- The limits that the run needs slots of, as in its first event; NULL for none.
    limits jsonb,
    -- The limits of the run's steps, by their names, as in its first event; NULL for none.
    step_limits jsonb,
    -- How many positions of the run's log were taken by its orchestrator, for runs of spec version 9 and later.
    seq_in_band bigint NOT NULL DEFAULT 0,
    -- Runs that other runs have started, whichever way, know the root of their tree and how far below it they are.
    root_id text COLLATE "C" NOT NULL DEFAULT '',
    depth integer NOT NULL DEFAULT 0,
    -- A run that gets long ends, and another one goes on with its work: which one goes on, and from which it went on.
    continued_from text COLLATE "C" NOT NULL DEFAULT '',
    continued_as text COLLATE "C" NOT NULL DEFAULT '',
    -- A fork begins with the first events of another run: of which one, and how many.
    fork_of text COLLATE "C" NOT NULL DEFAULT '',
    fork_seq bigint NOT NULL DEFAULT 0,
    CONSTRAINT runs_completed_at_check
        CHECK ((status = ANY ('{completed,failed,cancelled}'::text[])) = (completed_at IS NOT NULL)),
    CONSTRAINT runs_end_seq_check CHECK ((completed_at IS NOT NULL) = (end_seq > 0))
) WITH (fillfactor = 80);
-- Counts the open runs of a deployment.
CREATE INDEX runs_deployment_idx ON runs (project, deployment_id) WHERE completed_at IS NULL;
-- For retention.
CREATE INDEX runs_completed_idx ON runs (project, completed_at) WHERE completed_at IS NOT NULL;
-- Lists the failed runs with a code in the order of all lists of runs. Few runs fail, so the index is small.
CREATE INDEX runs_error_idx ON runs (project, error_code, created_at, id) WHERE error_code <> '';
-- Lists the forks of a run.
CREATE INDEX runs_fork_idx ON runs (fork_of, created_at, id) WHERE fork_of <> '';
CREATE UNIQUE INDEX runs_idempotency_key ON runs (project, idempotency_key) WHERE idempotency_key <> '';
-- For the history of a unique key: the runs that have had it.
CREATE INDEX runs_key_idx ON runs (project, unique_key, created_at, id) WHERE unique_key <> '';
-- Counts the open runs of a tree.
CREATE INDEX runs_open_descendants_idx ON runs (root_id) WHERE root_id <> '' AND completed_at IS NULL;
-- The live runs, for the sweeper.
CREATE INDEX runs_open_idx ON runs (id) WHERE completed_at IS NULL;
CREATE INDEX runs_parent_idx ON runs (parent_id, id) WHERE parent_id <> '';
-- Lists of runs are ordered by (created_at, id). A list of all statuses merges those of the five statuses, so two
-- indexes serve all four kinds of lists. They leave the IDs out: runs of the same millisecond are sorted by these where
-- they are read, so an entry takes half as much, and those of a status and a millisecond share one. Each index costs one
-- more write when a run starts and when it ends, which are the two updates that cannot be HOT because of it. Index
-- entries of a run's earlier statuses are skipped and marked dead by the next list, and removed by vacuum.
CREATE INDEX runs_status_created_idx ON runs (project, status, created_at);
CREATE UNIQUE INDEX runs_unique_key ON runs (project, workflow_name, unique_key)
    WHERE unique_key <> '' AND completed_at IS NULL;
CREATE INDEX runs_workflow_created_idx ON runs (project, workflow_name, status, created_at);

-- The log, keyed and ordered by (run_id, seq). Nothing is ordered by time. Columns of a fixed width come first: a row
-- needs 11 bytes less than with padding between them.
CREATE TABLE events (
    -- (xid, run_id, seq) is an order of a project's events that later commits do not change, for lists and live
    -- streams.
    --
    -- The ID of the transaction that wrote the event, but at least that of the run's previous event. No new events
    -- can appear below the oldest open transaction, so a reader that stays below it misses none
    -- (eventlog/read/feed.go).
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint NOT NULL CHECK (seq >= 1),
    created_at timestamptz NOT NULL,
    occurred_at timestamptz,
    spec_version integer NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    type event_type NOT NULL,
    correlation_id text COLLATE "C" NOT NULL DEFAULT '',
    data jsonb NOT NULL,
    extra bytea,
    payload bytea,
    project text COLLATE "C" NOT NULL,
    -- The size of a payload of which the event has only the reference; NULL if the event has the payload.
    blob_size bigint,
    PRIMARY KEY (run_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02); -- reuses the space of deleted rows early
-- The number of runs grows with the number of rows. Statistics of a small table do not show that: Postgres keeps the
-- number of runs, overestimates the rows of a run when the table has grown, and then plans statements about a run anew
-- at each execution. This makes it assume 20 rows per run.
ALTER TABLE events ALTER COLUMN run_id SET (n_distinct = -0.05);
CREATE INDEX events_correlation_idx ON events (correlation_id, run_id, seq) WHERE correlation_id <> '';
-- A run creates a hook once, whether or not it gets the token. For steps and waits, the keys of their tables ensure
-- that.
CREATE UNIQUE INDEX events_hook_claim_key ON events (run_id, correlation_id)
    WHERE type IN ('hook_created', 'hook_conflict');
-- One event per resumption, however often it is sent (protocol §3.8). The order of bytes keeps together what a run has
-- received of one signal.
CREATE UNIQUE INDEX events_resume_key ON events (run_id, ((data ->> 'resumeId') COLLATE "C"))
    WHERE type = 'hook_received' AND data ->> 'resumeId' IS NOT NULL;
-- The events of one type in a project by their transactions. Those of one transaction are sorted where they are read, so
-- the index has one entry for all events of a type that one transaction wrote. Lists of all types merge those of each
-- type, as lists of runs merge statuses.
CREATE INDEX events_xid_idx ON events (project, type, xid);

-- An order of the events of a project that a restore, a dump and a move to another cluster do not break: the numbers
-- of transactions are those of one cluster, and go back when it is restored (pg/epoch.go).
CREATE TABLE feed_epochs (
    number bigint PRIMARY KEY,
    -- What cursors name. It is random, so that another history of this database has others; empty in the
    -- first epoch.
    id text COLLATE "C" NOT NULL UNIQUE,
    -- The cluster and the database, as far as they are known, and when Postgres was started.
    cluster text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    -- No event of an earlier epoch is at this place or after it, and none of this epoch before it.
    begins bigint NOT NULL,
    -- What is added to the number of a transaction to get the place of its events.
    base bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO feed_epochs (number, id, cluster, started_at, begins, base) VALUES (1, '', '', '-infinity', 0, 0);

CREATE TABLE steps (
    run_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    status step_status NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 0),
    spec_version integer NOT NULL,
    -- seq of step_created, whose payload is the input.
    created_seq bigint NOT NULL,
    -- seq of the last step_completed, step_failed or step_retrying, whose payload is the output or error.
    result_seq bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    started_at timestamptz,
    completed_at timestamptz,
    retry_after timestamptz,
    PRIMARY KEY (run_id, id),
    CONSTRAINT steps_completed_at_check
        CHECK ((status = ANY ('{completed,failed}'::text[])) = (completed_at IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE steps ALTER COLUMN run_id SET (n_distinct = -0.05);
CREATE UNIQUE INDEX steps_created_key ON steps (run_id, created_seq);

-- delete_logs deletes the events and steps of a run with it. A foreign key would look up the run for each row, again,
-- which took Postgres a tenth of a run's processor time; and each statement that inserts events or steps has the run's row
-- locked, or inserts it, so a key could refuse none of them.
-- +goose StatementBegin
CREATE FUNCTION delete_logs() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM events WHERE run_id = ANY (ARRAY(SELECT id FROM gone));
    DELETE FROM steps WHERE run_id = ANY (ARRAY(SELECT id FROM gone));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER delete_logs AFTER DELETE ON runs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION delete_logs();

-- Live hooks. Disposing of a hook, or the end of its run, deletes the row and frees the token.
CREATE TABLE hooks (
    run_id text COLLATE "C" NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    is_webhook boolean NOT NULL,
    spec_version integer NOT NULL,
    -- seq of hook_created, whose payload is the metadata.
    created_seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    is_system boolean NOT NULL DEFAULT false,
    -- Until when the token stays reserved, even if the run ends earlier.
    retain_until timestamptz,
    -- Set to retain_until when the run ends: the row is valid until then. NULL while the run is live.
    expires_at timestamptz,
    -- The signal that resumes the hook, and the condition that the signal must meet.
    signal text COLLATE "C" NOT NULL DEFAULT '',
    condition text NOT NULL DEFAULT '',
    -- The hook of another run from which this hook has taken its token over.
    claimed_from jsonb,
    PRIMARY KEY (run_id, id),
    CONSTRAINT hooks_token_key UNIQUE (project, token)
);
CREATE INDEX hooks_created_idx ON hooks (project, created_at, id);
-- Approvals are few among the hooks, and people look at them all day.
CREATE INDEX hooks_approval_idx ON hooks (project, created_at, id) WHERE starts_with(token, 'approval_');
CREATE INDEX hooks_expiry_idx ON hooks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX hooks_id_idx ON hooks (id);
CREATE INDEX hooks_signal_idx ON hooks (project, signal, run_id, id) WHERE signal <> '';

-- Waits are kept as long as their run.
CREATE TABLE waits (
    run_id text COLLATE "C" NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    status text NOT NULL,
    spec_version integer NOT NULL,
    resume_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    completed_at timestamptz,
    project text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, id),
    CONSTRAINT waits_completed_at_check CHECK ((status IN ('completed', 'cancelled')) = (completed_at IS NOT NULL)),
    CONSTRAINT waits_status_check CHECK (status IN ('waiting', 'completed', 'cancelled'))
);
-- The waits of a project that are not over, by when they end.
CREATE INDEX waits_open_idx ON waits (project, resume_at, run_id, id) WHERE status = 'waiting';

-- The attributes of runs again, one row each, for lists of runs by attribute and for lists of attributes. The columns
-- copied from the run never change.
CREATE TABLE run_attributes (
    run_id text COLLATE "C" NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    workflow_name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX run_attributes_key_idx ON run_attributes (project, key, created_at);
CREATE INDEX run_attributes_value_idx ON run_attributes (project, key, value, created_at, run_id);
CREATE INDEX run_attributes_workflow_idx ON run_attributes (project, workflow_name, key, created_at);

-- The stores of runs: the fold of their events of the type store_set. Value is JSON as it was written. It is text, so
-- that Postgres can store all JSON that functions write: json::jsonb refuses some. Seq is the position of the event.
CREATE TABLE run_store (
    run_id text COLLATE "C" NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (run_id, key)
);

-- Large payloads are objects in a bucket or a folder (eventlog/blob).
CREATE TABLE blobs (
    id uuid PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    -- The run whose log has the payload; NULL until an event with it is committed, and once the run is deleted.
    run_id text COLLATE "C" REFERENCES runs(id) ON DELETE SET NULL,
    -- Bytes of the object.
    size bigint NOT NULL CHECK (size > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The object is being deleted, or is. No run can have the blob any more.
    doomed boolean NOT NULL DEFAULT false CHECK (NOT doomed OR run_id IS NULL)
);
CREATE INDEX blobs_run_idx ON blobs (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX blobs_free_idx ON blobs (created_at) WHERE run_id IS NULL;

-- ===== Streams

-- Streams are keyed by name: a reader may open one before it is written and without knowing its run.
CREATE TABLE streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- Only groups streams: they may begin before their run, and answers to health checks have none.
    run_id text COLLATE "C" NOT NULL,
    chunks bigint NOT NULL CHECK (chunks >= 0),
    created_at timestamptz NOT NULL,
    closed_at timestamptz,
    -- The run did not exist when the stream began, nor when the project's streams without a run were last checked.
    before_run boolean NOT NULL DEFAULT false,
    -- The bytes that the run's functions have written; 0 for other streams, which have no limit.
    bytes bigint NOT NULL DEFAULT 0,
    CONSTRAINT streams_name_key UNIQUE (project, name)
) WITH (fillfactor = 80);
CREATE INDEX streams_run_idx ON streams (project, run_id, name);
CREATE INDEX streams_before_run_idx ON streams (project) WHERE before_run;

CREATE TABLE stream_chunks (
    stream_id bigint NOT NULL REFERENCES streams(id) ON DELETE CASCADE,
    idx bigint NOT NULL CHECK (idx >= 0),
    data bytea NOT NULL,
    PRIMARY KEY (stream_id, idx)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- How far each writer of a stream that a run's functions write is.
CREATE TABLE stream_writers (
    stream_id bigint NOT NULL REFERENCES streams(id) ON DELETE CASCADE,
    -- The ID of the step that writes; empty for the run's function itself.
    writer text COLLATE "C" NOT NULL,
    -- The attempt that has written last. Empty for the run's function, whose calls go on with each other.
    attempt text COLLATE "C" NOT NULL,
    -- What the attempt writes next has this index: what has a lower one is there already.
    next bigint NOT NULL,
    PRIMARY KEY (stream_id, writer)
);

-- ===== Work

-- Messages that have not been acknowledged. All times are from the database's clock.
CREATE TABLE messages (
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    deployment_id text COLLATE "C" NOT NULL,
    -- The run that the sender named; empty if it named none.
    run_id text COLLATE "C" NOT NULL DEFAULT '',
    content_type text NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    -- When the message next needs a ticket: its delay is over, its lease has expired, or its ticket was lost.
    due_at timestamptz NOT NULL,
    -- The ID of the ticket (River job) that may deliver the message; 0 before the first.
    ticket integer NOT NULL DEFAULT 0,
    -- The receipt handle of the delivery in progress; empty if there is none.
    lease text COLLATE "C" NOT NULL DEFAULT '',
    delivery_count integer NOT NULL DEFAULT 0,
    last_error text NOT NULL DEFAULT '',
    -- Set when the message has failed too often: it is kept, and not delivered again until it is released by hand.
    parked_at timestamptz,
    -- The process that makes the delivery in progress; empty if the function extends the lease by itself.
    holder text COLLATE "C" NOT NULL DEFAULT '',
    -- Number of consecutive deliveries that did not reach the function. They do not count as deliveries.
    unreached_count integer NOT NULL DEFAULT 0,
    -- When the first counted delivery failed.
    first_failed_at timestamptz,
    -- last_seq of the run when the delivery in progress began; 0 if the message has no run.
    leased_seq bigint NOT NULL DEFAULT 0,
    -- The kind of work that the server does itself; empty for a message that it delivers.
    work text COLLATE "C" NOT NULL DEFAULT '',
    -- The step or hook of the run that the work is for.
    subject text COLLATE "C" NOT NULL DEFAULT '',
    -- Events arrived after the work in progress began: do it again.
    redeliver boolean NOT NULL DEFAULT false,
    -- Number of deliveries that were cut off because the app died. They count as deliveries, but not as failures of
    -- the app's code.
    disconnect_count integer NOT NULL DEFAULT 0,
    -- The last lease that a server which stopped left to the function. An extension by the function clears it.
    drained_lease text COLLATE "C" NOT NULL DEFAULT '',
    -- A proxy may repeat the call of a function. These say how long the log was when one of the copies last wrote to
    -- it during the call, and which request did; NULL if none has. What does not know as much of the log is refused.
    last_write_seq bigint,
    last_write_request bigint,
    -- The code and message with which the run's function refuses to go on; NULL for other failures, and for none.
    blocked jsonb,
    begins_run boolean NOT NULL DEFAULT false,
    awaits_since timestamptz,
    -- Number of deliveries that are no failures, although the function has got them: those up to the last one after
    -- which it asked for the message again, and those that ended with their server. The count of deliveries stays
    -- exact.
    excused_count integer NOT NULL DEFAULT 0,
    -- Until when the function that works on a message has said that it does; see queue.KeepLease.
    kept_until timestamptz,
    -- Heartbeats of the step's function; see queue.Beat: when the last one came, or a pause before the call began if
    -- none has; how long the function may be silent, NULL if it need not say that it works; and what it last said
    -- about how far it is, JSON, for the next attempt.
    beat_at timestamptz,
    beat_timeout interval,
    progress bytea,
    -- The pause that holds the message; NULL for none. See package queue/hold.
    held_by bigint,
    CONSTRAINT messages_parked_check CHECK (parked_at IS NULL OR lease = '')
) WITH (fillfactor = 70);
-- While the server is idle, the messages of schedules may be all there are, and they have no run: Postgres then expects
-- those of a run to be all. This makes it assume two.
ALTER TABLE messages ALTER COLUMN run_id SET (n_distinct = -0.5);
-- Finds who is next at a deployment. Few messages wait so.
CREATE INDEX messages_awaiting_idx ON messages (project, deployment_id, awaits_since, id)
    WHERE awaits_since IS NOT NULL AND parked_at IS NULL;
-- Finds the due messages of one project that belong to runs that have begun, or to those that have not, and the projects
-- that have any, without reading the messages of others.
CREATE INDEX messages_begun_due_idx ON messages (project, begins_run, due_at) WHERE parked_at IS NULL;
-- Finds the due messages of all projects. Statements about one project do not imply the condition: they say
-- parked_at IS NULL.
CREATE INDEX messages_due_idx ON messages (due_at) WHERE num_nulls(parked_at) = 1;
-- Counts the messages of a deployment that failed and are tried again.
CREATE INDEX messages_failed_at_idx ON messages (project, deployment_id) WHERE parked_at IS NULL AND last_error <> '';
-- Lists the messages of a project that failed and are tried again. Few are in this index.
CREATE INDEX messages_failed_idx ON messages (project, id) WHERE parked_at IS NULL AND last_error <> '';
-- Lists the messages of runs that are blocked. Few are.
CREATE INDEX messages_blocked_idx ON messages (project, id) WHERE blocked IS NOT NULL;
-- Finds the messages that a pause holds, to let them go.
CREATE INDEX messages_held_idx ON messages (held_by, id) WHERE held_by IS NOT NULL;
CREATE UNIQUE INDEX messages_lease_key ON messages (lease) WHERE lease <> '';
CREATE INDEX messages_parked_idx ON messages (project, id) WHERE parked_at IS NOT NULL;
-- Finds the messages that a run's app sent: all are for the deployment that executes it.
CREATE INDEX messages_run_idx ON messages (project, deployment_id, run_id) WHERE work = '';
-- Counts the calls of a deployment that are under way. No comparison with a lease implies the condition: a statement
-- about one message would otherwise read the whole index, and what has left it since it was last vacuumed.
CREATE INDEX messages_under_way_idx ON messages (project, deployment_id) WHERE lease LIKE '_%';
-- Finds the messages that wait for an app which asks for its deliveries, and those that an app did not get while it
-- was away. Few are in this index.
CREATE INDEX messages_unreached_idx ON messages (project, deployment_id, due_at)
    WHERE unreached_count > 0 AND lease = '' AND parked_at IS NULL;
-- The same work is queued only once.
CREATE UNIQUE INDEX messages_work_key ON messages (run_id, work, subject) WHERE work <> '';

-- Idempotency keys outlive their message, until their retention ends.
CREATE TABLE message_keys (
    project text COLLATE "C" NOT NULL,
    deployment_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project, deployment_id, topic, key)
);
CREATE INDEX message_keys_expiry_idx ON message_keys (expires_at);

-- Runs, workflows and deployments that are paused: nothing of them is called. Messages for them wait, and name the
-- pause that holds them.
CREATE TABLE pauses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'workflow', 'deployment')),
    -- The ID of the run or deployment, or the name of the workflow.
    name text COLLATE "C" NOT NULL,
    note text NOT NULL DEFAULT '',
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    -- Set when it is over, until no message is left that it has held.
    resumed_at timestamptz
);
CREATE UNIQUE INDEX pauses_key ON pauses (project, kind, name) WHERE resumed_at IS NULL;
CREATE INDEX pauses_resumed_idx ON pauses (id) WHERE resumed_at IS NOT NULL;

-- The sweeper's state of a run: how much of its log a delivery has seen, and whether the run is stranded, that is,
-- nothing is left that could make it proceed.
CREATE TABLE run_wakes (
    run_id text COLLATE "C" REFERENCES runs(id) ON DELETE CASCADE PRIMARY KEY,
    -- last_seq of the run when the last acknowledged delivery began. Kept only for runs with hooks.
    acked_seq bigint NOT NULL DEFAULT 0,
    -- Set while the run is stranded, with the reason and its last_seq.
    stranded_at timestamptz,
    reason text NOT NULL DEFAULT '',
    stranded_seq bigint NOT NULL DEFAULT 0,
    -- How often the run was woken at that last_seq, and when last.
    repairs integer NOT NULL DEFAULT 0,
    repaired_at timestamptz
);
CREATE INDEX run_wakes_stranded_idx ON run_wakes (run_id) WHERE stranded_at IS NOT NULL;

-- Processes that deliver messages. All times are from the database's clock.
CREATE TABLE processes (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    -- The advisory lock that the process holds while its session is open.
    session_key bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at timestamptz NOT NULL DEFAULT now(),
    -- The start of its uninterrupted heartbeats: a process that was paused itself cannot tell whether others are
    -- dead.
    steady_since timestamptz NOT NULL DEFAULT now(),
    -- The version, the commit and the role of the program.
    version text NOT NULL DEFAULT '',
    commit text NOT NULL DEFAULT '',
    role text NOT NULL DEFAULT '',
    -- The cell of the process; empty for none.
    cell text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- The sweeper's position among the live runs, and when it runs next. A single row.
CREATE TABLE sweeper (
    one boolean DEFAULT true PRIMARY KEY,
    cursor text COLLATE "C" NOT NULL DEFAULT '',
    due_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sweeper_one_check CHECK (one)
);
INSERT INTO sweeper DEFAULT VALUES;

-- ===== Functions

-- The URLs of the deployments' functions.
CREATE TABLE deployments (
    project text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    url text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- The workflows of a deployment, sorted. A run that names no deployment goes to the newest deployment that lists
    -- its workflow, else to the newest that lists none.
    workflows text[] NOT NULL DEFAULT '{}',
    -- What an app says about itself: the version of its program, and by workflow the JSON Schemas of input and
    -- output.
    build text NOT NULL DEFAULT '',
    schemas jsonb NOT NULL DEFAULT '{}',
    -- When it last answered a call, to the minute.
    answered_at timestamptz,
    -- When no connection to it was made, or one was closed before an answer, and why.
    failed_at timestamptz,
    failure text NOT NULL DEFAULT '',
    -- Since when it has not answered; NULL if it answers.
    unreachable_since timestamptz,
    -- A version of a flow that is retired begins no new runs. It is set on the deployment, which starts read.
    retired_at timestamptz,
    -- How many calls of its functions may be under way at once; NULL for any number.
    max_concurrent integer,
    -- How the health of a deployment is probed, as JSON; NULL if it is not.
    health jsonb,
    -- When it was probed last, how many of the last probes failed or succeeded one after another, and why the last
    -- one failed.
    probed_at timestamptz,
    probe_failures integer NOT NULL DEFAULT 0,
    probe_successes integer NOT NULL DEFAULT 0,
    probe_error text NOT NULL DEFAULT '',
    -- Set while it is unhealthy: since when, and when one call is made to see.
    unhealthy_since timestamptz,
    trial_at timestamptz,
    -- A deployment may execute steps, and have no workflow.
    steps_only boolean NOT NULL DEFAULT false,
    PRIMARY KEY (project, id),
    CONSTRAINT deployments_steps_only_check CHECK ((NOT steps_only) OR (workflows = '{}'::text[]))
);

-- The keys with which calls of a project's functions are signed.
CREATE TABLE signing_keys (
    project text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- A project may have two keys, one per slot: the current one and its replacement.
    slot smallint NOT NULL,
    -- In plain text, because HMAC needs it.
    secret bytea NOT NULL CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (project, id),
    CONSTRAINT signing_keys_slot_check CHECK (slot IN (1, 2)),
    CONSTRAINT signing_keys_slot_key UNIQUE (project, slot)
);

-- The keys that all servers of this database share, and nobody else has.
CREATE TABLE server_keys (
    -- What the key is for: calls.
    name text COLLATE "C" PRIMARY KEY,
    -- In plain text, because HMAC needs it.
    secret bytea NOT NULL CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Secrets that projects share with the senders of signed webhook requests.
CREATE TABLE secrets (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- All valid values: more than one while a secret is being rotated. In plain text, because HMAC needs it.
    "values" text[] NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- origins are where HTTP steps may send the secret to, such as https://mail.example.com; none by default.
    origins text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (project, name),
    CONSTRAINT secrets_values_check CHECK (cardinality("values") BETWEEN 1 AND 10)
);

-- ===== Signals

-- A signal resumes every hook of its project that waits for its name and whose condition it meets. Work in messages
-- dispatches it to the hooks. The row is kept until that is done, and until keep_until.
CREATE TABLE signals (
    project text COLLATE "C" NOT NULL,
    -- sig_ and a ULID. Signals are listed in this order.
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- The sender's idempotency key; empty for none.
    key text COLLATE "C" NOT NULL DEFAULT '',
    -- JSON as received.
    data bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Hooks opened until then may still receive the signal by replay.
    keep_until timestamptz NOT NULL,
    -- When the row is deleted, if dispatched: the idempotency key is remembered at least until then.
    expires_at timestamptz NOT NULL,
    -- The root of the run that has sent it, and how far below it the runs are that it starts.
    root_id text COLLATE "C" NOT NULL DEFAULT '',
    depth integer NOT NULL DEFAULT 0,
    -- The transaction's place, as of events: runs whose first event has one before it had started before the signal.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (project, id),
    CONSTRAINT signals_expires_at_check CHECK (expires_at >= keep_until AND keep_until >= created_at)
);
CREATE INDEX signals_expires_at_idx ON signals (expires_at);
CREATE UNIQUE INDEX signals_key ON signals (project, name, key) WHERE key <> '';
-- For replay.
CREATE INDEX signals_name_idx ON signals (project, name, created_at, id);

-- ===== Access

-- A key gives access to one project, with a role. Rows of revoked keys are kept, because the audit refers to them.
CREATE TABLE api_keys (
    -- key_ and a ULID. Keys are listed in this order.
    id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL REFERENCES projects(name),
    name text NOT NULL,
    role text NOT NULL,
    -- The start of the key, by which people recognise it.
    prefix text NOT NULL,
    -- SHA-256 of the key. A slow hash is needed for passwords only: a key is 256 random bits, which cannot be found
    -- by trying.
    hash bytea NOT NULL CHECK (length(hash) = 32) UNIQUE,
    created_at timestamptz NOT NULL,
    -- NULL for a key that never expires.
    expires_at timestamptz,
    revoked_at timestamptz,
    -- Accurate to about a minute.
    last_used_at timestamptz,
    -- Keys of the role worker register deployments: the one with this ID, or if it ends in *, all whose IDs begin
    -- like it. Empty for other roles.
    deployments text NOT NULL DEFAULT '',
    -- Of a person who signs in by an identity provider, and has a key in each project that their groups open: the issuer
    -- and the subject. Empty for a key of programs. The hash of a person's key is random, so no text is that key.
    person text COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT api_keys_deployments_check CHECK ((role = 'worker') = (deployments <> '')),
    CONSTRAINT api_keys_role_check CHECK (role IN ('admin', 'write', 'read', 'metadata', 'invoke', 'worker'))
);
CREATE UNIQUE INDEX api_keys_person_key ON api_keys (person, project) WHERE person <> '' AND revoked_at IS NULL;
CREATE INDEX api_keys_project_idx ON api_keys (project, id);

-- The sessions of browsers in the dashboard.
CREATE TABLE sessions (
    -- The SHA-256 of the cookie.
    id bytea PRIMARY KEY CHECK (octet_length(id) = 32),
    created_at timestamptz NOT NULL,
    -- The last use, accurate to an hour.
    used_at timestamptz NOT NULL
);
-- The sessions that are too old, and those that have opened a project.
CREATE INDEX sessions_created_idx ON sessions (created_at);

-- The key with which a session opened each project. The text of a key is stored nowhere.
CREATE TABLE session_keys (
    session_id bytea NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    project text COLLATE "C" NOT NULL REFERENCES projects(name),
    key_id text COLLATE "C" REFERENCES api_keys(id) ON DELETE CASCADE,
    -- Of the key in the server's environment, instead of key_id: its HMAC with the cookie. With another key in the
    -- environment it is void; without the cookie it tells nothing about the key.
    environment bytea CHECK (octet_length(environment) = 32),
    PRIMARY KEY (session_id, project),
    CONSTRAINT session_keys_one_check CHECK ((key_id IS NULL) <> (environment IS NULL))
);
CREATE INDEX session_keys_project_idx ON session_keys (project, session_id);

-- Codes that open a project in a browser, once. They live for a minute.
CREATE TABLE session_codes (
    -- The SHA-256 of the code.
    id bytea PRIMARY KEY CHECK (octet_length(id) = 32),
    project text COLLATE "C" NOT NULL REFERENCES projects(name),
    -- The key that made the code, or the HMAC of the environment's key with the code: as in session_keys.
    key_id text COLLATE "C" REFERENCES api_keys(id) ON DELETE CASCADE,
    environment bytea CHECK (octet_length(environment) = 32),
    created_at timestamptz NOT NULL,
    CONSTRAINT session_codes_one_check CHECK ((key_id IS NULL) <> (environment IS NULL))
);
CREATE INDEX session_codes_created_idx ON session_codes (created_at);

-- Changes of keys, projects, deployments, secrets, messages and retention, each recorded in its own transaction.
CREATE TABLE audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    project text COLLATE "C" NOT NULL,
    -- Who did it: the ID of a key, or STEPWELL_API_KEY, open, cli or server.
    actor text NOT NULL,
    action text NOT NULL,
    -- The object that was changed.
    subject text NOT NULL,
    detail jsonb NOT NULL,
    -- The address of the client, as the server saw it; empty for changes that came from no request.
    address text NOT NULL DEFAULT ''
);
CREATE INDEX audit_action_idx ON audit (project, action, seq);
-- The audit by what a list selects.
CREATE INDEX audit_actor_idx ON audit (project, actor, seq);
CREATE INDEX audit_project_idx ON audit (project, seq);
CREATE INDEX audit_subject_idx ON audit (project, subject, seq);

-- ===== Encryption

-- Payloads of projects are encrypted by keys of their own, which keys outside of the database wrap.
CREATE TABLE data_keys (
    -- Random. It is in every payload that the key encrypts.
    id bytea PRIMARY KEY CHECK (octet_length(id) = 16),
    project text COLLATE "C" NOT NULL,
    -- The name of the key that wraps this one, and this one wrapped; NULL once it is destroyed.
    wrapped_by text COLLATE "C" NOT NULL,
    wrapped bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Since when another key encrypts what is written, and this one only decrypts.
    retired_at timestamptz,
    destroyed_at timestamptz,
    -- Grows with every change of a row, in the order of the commits.
    revision bigint NOT NULL UNIQUE,
    -- Whether what the key encrypts for a run is encrypted by a key that follows from it and the run's secret.
    per_run boolean NOT NULL DEFAULT false,
    CONSTRAINT data_keys_destroyed_check CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL)
        AND (destroyed_at IS NULL OR retired_at IS NOT NULL))
);
-- One key of a project encrypts.
CREATE UNIQUE INDEX data_keys_current_key ON data_keys (project) WHERE retired_at IS NULL;
CREATE INDEX data_keys_project_idx ON data_keys (project, created_at);

-- Payloads of a run can be encrypted by a key of the run, so that this alone can be destroyed.
CREATE TABLE run_keys (
    -- The run may not exist yet, or not any more.
    run_id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    -- Random; NULL once it is destroyed. It is good for nothing without the project's data key.
    secret bytea CHECK (octet_length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    shredded_at timestamptz,
    -- Since when the run is in an archive only, from which it can be imported.
    archived_at timestamptz,
    CONSTRAINT run_keys_shredded_check CHECK ((secret IS NULL) = (shredded_at IS NOT NULL))
);
CREATE INDEX run_keys_shredded_idx ON run_keys (shredded_at) WHERE shredded_at IS NOT NULL;

-- ===== Capacity

-- Limits bound how many runs and steps are under way at once, or begin in a time. docs/guarantees.md has the rules.
CREATE TABLE limits (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- So many at once: with one key, and in all; 0 for no bound.
    per_key integer NOT NULL CHECK (per_key >= 0),
    total integer NOT NULL CHECK (total >= 0),
    -- So many begin with one key in any window of this length; 0 for no bound.
    rate integer NOT NULL CHECK (rate >= 0),
    per interval NOT NULL,
    burst integer NOT NULL CHECK (burst >= 0),
    -- Whether tenants take turns.
    fair boolean NOT NULL,
    on_full text COLLATE "C" NOT NULL,
    paused boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name),
    CONSTRAINT limits_on_full_check CHECK (on_full IN ('wait', 'reject', 'replaceWaiting', 'cancelOldest'))
);

-- The limits of workflows whose runs do not name them.
CREATE TABLE policies (
    project text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    -- A list of limits, with expressions for their keys.
    limits jsonb NOT NULL,
    priority interval NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- The limits of the steps of a policy's workflow, by their names; NULL for none.
    steps jsonb,
    PRIMARY KEY (project, workflow)
);

-- What holds a slot of a limit, or waits for one. A permit goes with the run and the message that it is about, so it
-- cannot be left behind.
CREATE TABLE permits (
    -- The ID of the run, or of the message with the step, that the permit is for.
    holder text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    -- How many slots it takes.
    cost integer NOT NULL,
    run_id text COLLATE "C" NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    -- NULL if the run holds it.
    message_id text COLLATE "C" REFERENCES messages(id) ON DELETE CASCADE,
    -- When it came, and the same less its priority, which orders those who wait.
    created_at timestamptz NOT NULL,
    rank_at timestamptz NOT NULL,
    -- When it may go at the earliest: the end of a retry's backoff.
    not_before timestamptz,
    -- How many have gone before it while another limit kept it from going.
    passed integer NOT NULL DEFAULT 0,
    -- When it got its slot; NULL while it waits.
    granted_at timestamptz,
    -- When a step stops waiting for a slot: at its deadline. NULL for never.
    until timestamptz,
    PRIMARY KEY (holder, name),
    CONSTRAINT permits_cost_check CHECK (cost > 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX permits_held_idx ON permits (project, name, key) WHERE granted_at IS NOT NULL;
CREATE INDEX permits_message_idx ON permits (message_id) WHERE message_id IS NOT NULL;
-- Finds those that came first with any key. The condition is written so that no look-up of a key uses the index.
CREATE INDEX permits_rank_idx ON permits (project, name, rank_at, holder) WHERE num_nulls(granted_at) = 1;
CREATE INDEX permits_run_idx ON permits (run_id);
CREATE INDEX permits_until_idx ON permits (until) WHERE granted_at IS NULL AND until IS NOT NULL;
CREATE INDEX permits_waiting_idx ON permits (project, name, key, rank_at, holder) WHERE granted_at IS NULL;

-- What limits remember of a key or a tenant. Rows whose time is long past mean nothing.
CREATE TABLE limit_clocks (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- 'rate': when the key has its whole burst again. 'served': when the tenant last got a slot.
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (project, name, kind, key),
    CONSTRAINT limit_clocks_kind_check CHECK (kind IN ('rate', 'served'))
) WITH (fillfactor = 50);
CREATE INDEX limit_clocks_at_idx ON limit_clocks (at);

-- ===== Starts

-- Schedules start runs at the ticks of a cron expression or an interval. Work in messages decides the ticks: its
-- subject is the schedule's ID, and it is due at the next tick.
CREATE TABLE schedules (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- sched_ and a ULID: a schedule that is created again has another one.
    id text COLLATE "C" NOT NULL,
    -- When it ticks: either of the two.
    cron text NOT NULL,
    every interval NOT NULL,
    time_zone text NOT NULL,
    -- What a tick starts. An empty deployment stands for the newest one of the workflow.
    workflow text COLLATE "C" NOT NULL,
    deployment text COLLATE "C" NOT NULL,
    input bytea NOT NULL,
    attributes jsonb NOT NULL,
    timeout interval NOT NULL,
    overlap text COLLATE "C" NOT NULL,
    catch_up text COLLATE "C" NOT NULL,
    catch_up_window interval NOT NULL,
    jitter interval NOT NULL,
    paused_at timestamptz,
    pause_note text NOT NULL DEFAULT '',
    -- Every tick up to here has its decision, and no tick after it.
    decided_until timestamptz NOT NULL,
    -- The next tick; NULL if there is none.
    next_at timestamptz,
    -- The tick that waits for the end of the last run; NULL if none does.
    waiting_at timestamptz,
    -- The last run that a tick or a trigger has started; empty for none.
    run_id text COLLATE "C" NOT NULL DEFAULT '',
    -- The backfill under way: all of its ticks up to backfill_at are decided, and it ends with backfill_until.
    backfill_at timestamptz,
    backfill_until timestamptz,
    backfill_repeat boolean NOT NULL DEFAULT false,
    backfill_run_id text COLLATE "C" NOT NULL DEFAULT '',
    -- How many decisions have been recorded.
    ticks bigint NOT NULL DEFAULT 0,
    -- Changes with every write, so that a decision applies only to the schedule that it was made for.
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- A schedule ticks from from_at, if it is set, to until_at.
    from_at timestamptz,
    until_at timestamptz,
    -- The ticks that wait behind waiting_at, in their order.
    waiting_more timestamptz[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (project, name),
    CONSTRAINT schedules_backfill_check CHECK ((backfill_at IS NULL) = (backfill_until IS NULL)),
    CONSTRAINT schedules_catch_up_check CHECK (catch_up IN ('latest', 'all')),
    CONSTRAINT schedules_timing_check CHECK ((cron = '') <> (every = '00:00:00')),
    CONSTRAINT schedules_overlap_check CHECK (overlap IN ('skip', 'wait', 'waitAll', 'cancel', 'allow'))
);
CREATE UNIQUE INDEX schedules_id_key ON schedules (id);

-- What was decided about each tick. The key is the second guard against deciding one twice.
CREATE TABLE schedule_ticks (
    schedule_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    project text COLLATE "C" NOT NULL,
    -- Numbers the decisions of a schedule. The oldest are deleted.
    seq bigint NOT NULL,
    decision text COLLATE "C" NOT NULL,
    -- The run that was started, or because of which the tick was skipped; empty for none.
    run_id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    -- A row may stand for several missed ticks, from at to last_at.
    count bigint NOT NULL,
    last_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, kind, at),
    CONSTRAINT schedule_ticks_decision_check
        CHECK (decision IN ('started', 'waiting', 'skipped', 'missed', 'refused')),
    CONSTRAINT schedule_ticks_kind_check CHECK (kind IN ('tick', 'trigger', 'backfill'))
);
CREATE INDEX schedule_ticks_seq_idx ON schedule_ticks (schedule_id, seq);

-- A collection is a run that will be: starts with the same key are collected until it is due. Work in messages starts
-- the run; its subject is the run's ID. The row is deleted in the transaction that starts the run.
CREATE TABLE collections (
    -- The ID that the run will have.
    run_id text COLLATE "C" PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- When the run starts: quiet after the last start, and max_wait after the first one at the latest.
    quiet interval NOT NULL,
    max_wait interval NOT NULL,
    -- Which input the run gets. With all it is a list of at most size items and max_bytes bytes.
    keep text COLLATE "C" NOT NULL,
    size integer NOT NULL,
    max_bytes bigint NOT NULL,
    -- What the run is started with. The data is that of its first event; input is empty if the run gets a list.
    deployment text COLLATE "C" NOT NULL,
    data jsonb NOT NULL,
    timeout interval NOT NULL,
    input bytea NOT NULL,
    -- How many starts were collected, and the bytes of the input so far.
    count bigint NOT NULL,
    bytes bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    -- Why the run could not be started when it was due; empty if that was not tried.
    refusal text NOT NULL DEFAULT '',
    CONSTRAINT collections_keep_check CHECK (keep IN ('last', 'first', 'all')),
    CONSTRAINT collections_kind_check CHECK (kind IN ('debounce', 'batch'))
);
CREATE UNIQUE INDEX collections_key ON collections (project, workflow, kind, key);
CREATE INDEX collections_project_idx ON collections (project, run_id);

-- The starts of a collection that have to be remembered: those whose inputs become a list, until the run has started,
-- and those with an idempotency key, as long as the run is kept.
CREATE TABLE collected (
    run_id text COLLATE "C" NOT NULL,
    -- Numbers the starts of a collection in the order of their arrival.
    seq bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    input bytea NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE UNIQUE INDEX collected_key ON collected (project, idempotency_key) WHERE idempotency_key <> '';

-- Triggers start a run when something happens: a signal, a request to a webhook, the end of a run. A signal and the
-- end of a run leave work in messages for each trigger that matches; its subject is the trigger's ID and the event's.
CREATE TABLE triggers (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- trg_ and a ULID: a trigger that is created again has another one.
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    -- What it waits for: the name of a signal, the token of a webhook, or the workflow of runs.
    source text COLLATE "C" NOT NULL,
    -- An expression in CEL; empty for none.
    condition text NOT NULL,
    -- With which statuses the runs end; empty for other kinds.
    statuses text[] NOT NULL,
    -- The signature scheme of a webhook and its secret; empty for none.
    verify text COLLATE "C" NOT NULL,
    secret text COLLATE "C" NOT NULL,
    -- What it starts. An empty deployment stands for the newest one of the workflow, and an empty input for the
    -- event.
    workflow text COLLATE "C" NOT NULL,
    deployment text COLLATE "C" NOT NULL,
    input bytea NOT NULL,
    attributes jsonb NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    joins boolean NOT NULL,
    timeout interval NOT NULL,
    paused_at timestamptz,
    pause_note text NOT NULL,
    -- Changes with every write, so that what was read before is not acted upon.
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- What the start of a trigger says besides: limits, priority, delay, idempotency key, debounce and batch.
    options jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (project, name),
    CONSTRAINT triggers_kind_check CHECK (kind IN ('signal', 'webhook', 'runEnded'))
);
CREATE UNIQUE INDEX triggers_id_key ON triggers (id);
-- Every end of a run and every signal looks here.
CREATE INDEX triggers_source_idx ON triggers (project, kind, source);

-- What became of each event. The key is the second guard against starting twice; the first is the idempotency key of
-- the run.
CREATE TABLE trigger_events (
    trigger_id text COLLATE "C" NOT NULL REFERENCES triggers(id) ON DELETE CASCADE,
    -- The ID of the signal, of the request, or of the run that ended.
    event text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    -- The order of the decisions. The oldest are deleted.
    seq bigint GENERATED ALWAYS AS IDENTITY,
    decision text COLLATE "C" NOT NULL,
    -- The run that was started or joined, or that has the key; empty for none.
    run_id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (trigger_id, event),
    CONSTRAINT trigger_events_decision_check
        CHECK (decision IN ('started', 'joined', 'collected', 'skipped', 'refused', 'retrying'))
);
CREATE INDEX trigger_events_seq_idx ON trigger_events (trigger_id, seq);

-- ===== Flows

-- The versions of flows. Each is a deployment, whose ID it has, so that a run keeps the version that it was started
-- with, and the newest one is the newest deployment of the workflow. The documents never change.
CREATE TABLE flow_versions (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    deployment_id text COLLATE "C" NOT NULL,
    -- The SHA-256 of the document's values, in their order, without comments and spaces.
    digest bytea NOT NULL,
    document text NOT NULL,
    created_at timestamptz NOT NULL,
    semantics integer NOT NULL DEFAULT 1,
    PRIMARY KEY (project, name, version),
    CONSTRAINT flow_versions_semantics_check CHECK (semantics > 0),
    CONSTRAINT flow_versions_version_check CHECK (version > 0),
    UNIQUE (project, deployment_id),
    FOREIGN KEY (project, deployment_id) REFERENCES deployments(project, id) DEFERRABLE INITIALLY DEFERRED
);

-- Names for versions of flows. New runs that are started by one have the version that it points to.
CREATE TABLE flow_aliases (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    alias text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    -- How starts name it: NAME@ALIAS, where those of deployments are NAME@VERSION.
    id text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name, alias),
    UNIQUE (project, id),
    FOREIGN KEY (project, name, version) REFERENCES flow_versions(project, name, version)
);

-- The versions of catalogs: steps by what they take and give. The plan that is made of one for a run is a version of
-- the flow with the catalog's name. The documents never change.
CREATE TABLE catalogs (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    -- The SHA-256 of the document's values, in their order, without comments and spaces.
    digest bytea NOT NULL,
    document text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (project, name, version),
    CONSTRAINT catalogs_version_check CHECK (version > 0)
);

-- ===== Keeping and counting

-- How long a project's runs are kept after they end. A project without a row has the server's default.
CREATE TABLE retention (
    project text COLLATE "C" PRIMARY KEY,
    -- NULL keeps them for ever.
    keep interval,
    CONSTRAINT retention_keep_check CHECK (keep > '00:00:00')
);

-- Runs that were archived and deleted stay listed, so that they can be found (eventlog/archive).
-- Their rows as they were. A migration that changes the columns of runs changes these too.
CREATE TABLE archived_runs (
    LIKE runs,
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);
CREATE INDEX archived_runs_created_idx ON archived_runs (project, created_at, id);
CREATE INDEX archived_runs_key_idx ON archived_runs (project, unique_key, created_at, id) WHERE unique_key <> '';
CREATE INDEX archived_runs_archived_idx ON archived_runs (archived_at);

CREATE TABLE archived_attributes (
    run_id text COLLATE "C" NOT NULL REFERENCES archived_runs(id) ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX archived_attributes_value_idx ON archived_attributes (project, key, value, created_at, run_id);

-- How often things happened in a project in an interval, and how long they took. The rows are a fold of the project's
-- events (eventlog/stats). Each event is counted in one interval of each width.
CREATE TABLE stats (
    project text COLLATE "C" NOT NULL,
    -- How long the interval is, in minutes: a minute, an hour, 6 hours or a day.
    width smallint NOT NULL,
    -- The type of the events, or a part of it: see the constants in eventlog/stats.
    metric text COLLATE "C" NOT NULL,
    -- The start of the interval.
    at timestamptz NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    -- The deployment of a run, the name of a step, or the code of an error.
    label text COLLATE "C" NOT NULL,
    -- The duration, as a class of a histogram; 0 for what has no duration.
    took smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (project, width, metric, at, workflow, label, took)
);

-- How far the events of each project are counted.
CREATE TABLE stats_progress (
    project text COLLATE "C" PRIMARY KEY,
    -- The last event counted, in the order of the project's events.
    xid xid8 NOT NULL DEFAULT '0',
    run_id text COLLATE "C" NOT NULL DEFAULT '',
    seq bigint NOT NULL DEFAULT 0,
    -- The events before this time are counted.
    complete_to timestamptz NOT NULL DEFAULT '-infinity',
    -- When counts that are too old were deleted last.
    pruned_at timestamptz NOT NULL DEFAULT '-infinity'
);

-- ===== Cells

-- The projects that leave this database, or have left it. While there is a row, triggers refuse every write of the
-- project: those of refuse_write, whose conditions name it.
CREATE TABLE departures (
    project text COLLATE "C" PRIMARY KEY,
    -- This cell, and the one to which the project goes.
    here text COLLATE "C" NOT NULL,
    cell text COLLATE "C" NOT NULL,
    -- The newest epoch of the other database when the move began, by which a repeated command knows that it has the same.
    target text COLLATE "C" NOT NULL,
    -- Identifies the move.
    fenced_at timestamptz NOT NULL DEFAULT now(),
    -- Since when the other cell has it, and since when nothing of it is left here but its name and its keys.
    moved_at timestamptz,
    cleaned_at timestamptz
);

-- The cells from which a project of this database came, one row for each.
CREATE TABLE arrivals (
    project text COLLATE "C" NOT NULL,
    cell text COLLATE "C" NOT NULL,
    -- The key for the tokens of calls that the cell has made; NULL if it has made none. In plain text, because HMAC needs
    -- it.
    calls bytea CHECK (octet_length(calls) = 32),
    -- departures.fenced_at there, which identifies the move.
    departed_at timestamptz NOT NULL,
    arrived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, cell)
);

-- The epochs of the cells from which a project came: cursors of the project name them.
CREATE TABLE arrived_epochs (
    project text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- Up to which place the epoch is part of this history.
    kept bigint NOT NULL,
    PRIMARY KEY (project, id)
);

-- In the database that a project will leave: the moves that copy ended runs ahead. While there is a row, triggers note the
-- ended runs of the project that change.
CREATE TABLE leaving (
    project text COLLATE "C" PRIMARY KEY,
    -- The cell to which it will go.
    cell text COLLATE "C" NOT NULL,
    -- Identifies the move.
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Runs of these projects that ended, or of which something changed after their end, and the transactions that did it.
CREATE TABLE leaving_changes (
    project text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX leaving_changes_run_idx ON leaving_changes (project, run_id);

-- In the database to which a project moves, while its ended runs are copied ahead: how far that is. The project also has
-- a row in departures, as one that has left, so that all leave its rows alone.
CREATE TABLE arriving (
    project text COLLATE "C" PRIMARY KEY,
    -- The cell where it is, and the move, as leaving.began_at there.
    cell text COLLATE "C" NOT NULL,
    began_at timestamptz NOT NULL,
    -- Counts what the move has written, by which a command notices another one.
    steps bigint NOT NULL DEFAULT 0,
    -- What is copied now, and the place of the last run that is copied.
    pass text NOT NULL,
    at timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00Z',
    run_id text COLLATE "C" NOT NULL DEFAULT '',
    -- Changes by older transactions than this one are followed.
    followed xid8 NOT NULL DEFAULT '0',
    -- The epoch of the other database, and the place up to which it was read: a history that was lost is not gone on with.
    epoch text COLLATE "C" NOT NULL DEFAULT '',
    place bigint NOT NULL DEFAULT 0
);

-- refuse_write refuses to change a row of a project that leaves. Its argument is the column that says whose the row is:
-- name, project, run_id or stream_id. A transaction with an older snapshot than the move may not see that the project
-- leaves, nor its run; it must begin again.
-- +goose StatementBegin
CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    of text;
    leaving departures;
    old_snapshot boolean := current_setting('transaction_isolation') <> 'read committed';
BEGIN
    IF TG_OP = 'DELETE' THEN
        EXECUTE format('SELECT ($1).%I::text', TG_ARGV[0]) USING OLD INTO of;
    ELSE
        EXECUTE format('SELECT ($1).%I::text', TG_ARGV[0]) USING NEW INTO of;
    END IF;
    IF TG_ARGV[0] = 'run_id' THEN
        SELECT r.project INTO of FROM runs r WHERE r.id = of;
    ELSIF TG_ARGV[0] = 'stream_id' THEN
        SELECT s.project INTO of FROM streams s WHERE s.id = of::bigint;
    END IF;
    SELECT d.* INTO leaving FROM departures d WHERE d.project = of;
    IF leaving.project IS NOT NULL THEN
        RAISE EXCEPTION 'project % %', of,
            CASE WHEN leaving.moved_at IS NULL THEN 'is moving to cell ' ELSE 'is in cell ' END || leaving.cell
            USING ERRCODE = CASE WHEN leaving.moved_at IS NULL THEN 'SWM01' ELSE 'SWM02' END,
                DETAIL = json_build_object('project', of, 'here', leaving.here, 'cell', leaving.cell);
    END IF;
    IF old_snapshot AND (of IS NULL OR TG_ARGV[0] IN ('name', 'project')) THEN
        RAISE EXCEPTION 'the project may be moving: begin the transaction again' USING ERRCODE = 'serialization_failure';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- note_change notes the run of a row that is written. Its argument is the column with the run.
-- +goose StatementBegin
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    written record;
    run text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        written := OLD;
    ELSE
        written := NEW;
    END IF;
    IF TG_ARGV[0] = 'id' THEN
        run := written.id;
    ELSE
        run := written.run_id;
    END IF;
    INSERT INTO leaving_changes (project, run_id) VALUES (written.project, run);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- ===== Requests in SQL

-- What an app asks for in a transaction of its own, beside its own tables: nothing is asked if it is rolled back. Each
-- function leaves a message of the work "request", which a server carries out after the commit, through the API
-- (handlers/requests.go). They have the rights of their owner, so callers need none on tables. docs/transactions.md
-- describes them; their signatures are a promise.

-- new_ulid returns an ID that sorts by its time: 48 bits of milliseconds, then 80 random ones, in Crockford's base 32.
-- The first 5 bytes of a random UUID are all random.
CREATE FUNCTION new_ulid() RETURNS text LANGUAGE sql VOLATILE
RETURN (
    WITH number AS MATERIALIZED (
        SELECT '00' || (extract(epoch FROM clock_timestamp()) * 1000)::bigint::bit(48)::text
            || ('x' || left(replace(gen_random_uuid()::text, '-', ''), 10)
                || left(replace(gen_random_uuid()::text, '-', ''), 10))::bit(80)::text AS bits
    )
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(bits, i * 5 + 1, 5)::bit(5)::integer + 1, 1), ''
        ORDER BY i)
    FROM number, generate_series(0, 25) AS i
);

-- leave_request leaves a request of the API to be made: the names in its path below /v1, its body, and the ID of the run
-- that it starts. The project must exist. A request has 4 MiB at most.
-- +goose StatementBegin
CREATE FUNCTION leave_request(project text, path text[], body json, run_id text, starts boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    id text := 'msg_' || new_ulid();
    request text := json_build_object('path', path, 'runId', run_id, 'body', body);
BEGIN
    IF NOT EXISTS (SELECT FROM projects p WHERE p.name = leave_request.project) THEN
        RAISE EXCEPTION 'project "%" does not exist: create it with stepwell projects add', project
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF octet_length(request) > 4194304 THEN
        RAISE EXCEPTION 'the request is % bytes long; the limit is 4194304: pass a reference to what is large',
            octet_length(request) USING ERRCODE = 'program_limit_exceeded';
    END IF;
    INSERT INTO messages (id, project, topic, deployment_id, work, subject, content_type, body, expires_at, due_at, begins_run)
    VALUES (id, project, path[1], '', 'request', id, 'application/json', convert_to(request, 'UTF8'),
        now() + interval '1 day', clock_timestamp(), starts);
    PERFORM pg_notify(current_schema || '.hints', 'due');
END $$;

-- start_run starts a run and returns its ID. Options are those of POST /v1/runs, but for debounce and batch, with which
-- the run would have another ID.
CREATE FUNCTION start_run(workflow text, input json DEFAULT NULL, options json DEFAULT '{}', project text DEFAULT 'default')
RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    id text := 'wrun_' || new_ulid();
    refused text;
BEGIN
    IF coalesce(workflow, '') = '' THEN
        RAISE EXCEPTION 'the workflow is missing' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(json_typeof(options), '') <> 'object' THEN
        RAISE EXCEPTION 'options are no JSON object: give {} for none' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT o INTO refused FROM json_object_keys(options) o WHERE o IN ('workflow', 'input', 'debounce', 'batch') LIMIT 1;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'option "%" cannot be given here', refused USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM leave_request(project, ARRAY['runs'], (
        SELECT json_object_agg(key, value) FROM (
            SELECT key, value FROM json_each(options)
            UNION ALL SELECT 'workflow', to_json(workflow)
            UNION ALL SELECT 'input', input WHERE input IS NOT NULL
            UNION ALL SELECT 'idempotencyKey', to_json(id) WHERE options -> 'idempotencyKey' IS NULL
        ) AS field (key, value)), id, true);
    RETURN id;
END $$;

-- send_signal sends a signal. With an ID it counts once.
CREATE FUNCTION send_signal(name text, data json DEFAULT 'null', id text DEFAULT NULL, project text DEFAULT 'default')
RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
    SELECT leave_request(project, ARRAY['signals', name],
        json_build_object('data', data, 'id', coalesce(id, 'sql_' || new_ulid())), NULL, false)
$$;

-- resume_hook resumes the hook with a token. With an ID it is resumed once.
CREATE FUNCTION resume_hook(token text, payload json DEFAULT 'null', id text DEFAULT NULL, project text DEFAULT 'default')
RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
    SELECT leave_request(project, ARRAY['hooks', token, 'resume'],
        json_build_object('payload', payload, 'resumeId', coalesce(id, 'sql_' || new_ulid())), NULL, false)
$$;

-- send_message sends a message to an inbox of a run. With an ID it counts once.
CREATE FUNCTION send_message(run_id text, inbox text, payload json DEFAULT 'null', id text DEFAULT NULL,
    project text DEFAULT 'default')
RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
    SELECT leave_request(project, ARRAY['runs', run_id, 'inbox', inbox],
        json_build_object('payload', payload, 'id', coalesce(id, 'sql_' || new_ulid())), NULL, false)
$$;

-- The results of steps that were written in the transactions of apps. They go with their run.
CREATE TABLE step_results (
    run_id text COLLATE "C" NOT NULL,
    step_id text COLLATE "C" NOT NULL,
    -- NULL only within the transaction that executes the step.
    result json,
    PRIMARY KEY (run_id, step_id)
);

-- begin_step begins a step in the transaction of its writes. It returns NULL if the step is to be executed, and its
-- result if that has happened: another transaction that executes it is waited for. end_step keeps the result.
CREATE FUNCTION begin_step(run_id text, step_id text) RETURNS json LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO step_results (run_id, step_id) VALUES (begin_step.run_id, begin_step.step_id) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT r.result FROM step_results r WHERE r.run_id = begin_step.run_id AND r.step_id = begin_step.step_id);
END $$;

CREATE FUNCTION end_step(run_id text, step_id text, result json) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE step_results r SET result = coalesce(end_step.result, 'null')
    WHERE r.run_id = end_step.run_id AND r.step_id = end_step.step_id AND r.result IS NULL
$$;

-- Who calls them cannot make them find tables of their own, and nobody can call them without a grant.
DO $$
DECLARE
    name regprocedure;
BEGIN
    FOR name IN SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema::regnamespace AND p.proname IN ('new_ulid', 'leave_request', 'start_run',
            'send_signal', 'resume_hook', 'send_message', 'begin_step', 'end_step')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', name, current_schema);
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name);
    END LOOP;
END $$;
-- +goose StatementEnd

-- ===== Views for readers

-- The log for SQL of others: reports, and joins with the tables of a business. docs/sql.md describes the columns. They
-- stay while the tables change: a migration may replace a view and add columns at its end. No server reads them. Texts that
-- the tables leave empty are empty here, too: a condition on an expression would not use the tables' indexes.

-- payload_json returns JSON text as jsonb, and NULL for all else: encodings of the Workflow SDK, texts with a NUL.
-- +goose StatementBegin
CREATE FUNCTION payload_json(payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE VIEW v_runs AS
SELECT r.id AS run_id, r.project, r.workflow_name AS workflow, r.deployment_id AS deployment, r.status::text AS status,
    r.unique_key, r.idempotency_key, r.attributes,
    payload_json(first.payload) AS input,
    CASE WHEN r.status = 'completed' THEN payload_json(last.payload) END AS output,
    CASE WHEN r.status = 'failed' THEN payload_json(last.payload) END AS error,
    r.error_code,
    r.parent_id AS parent_run_id, r.parent_step AS parent_step_id,
    r.root_id AS root_run_id, r.depth, r.last_seq AS events,
    r.created_at, r.started_at, r.completed_at AS ended_at, r.deadline,
    r.fork_of AS forked_from, r.fork_seq AS forked_events, r.continued_from, r.continued_as
FROM runs r
LEFT JOIN events first ON first.run_id = r.id AND first.seq = 1
LEFT JOIN events last ON last.run_id = r.id AND last.seq = r.end_seq;

-- The token of a webhook is a secret, in the log as in v_hooks.
CREATE VIEW v_events AS
SELECT e.run_id, e.seq, e.project, e.type::text AS type, e.correlation_id AS entity_id,
    CASE WHEN e.data ->> 'isWebhook' = 'true' THEN e.data - 'token' ELSE e.data END AS data,
    payload_json(e.payload) AS payload, e.payload AS payload_bytes, e.created_at, e.occurred_at
FROM events e;

CREATE VIEW v_steps AS
SELECT s.run_id, s.id AS step_id, r.project, r.workflow_name AS workflow, s.name, s.status::text AS status, s.attempt,
    payload_json(input.payload) AS input,
    CASE WHEN s.status = 'completed' THEN payload_json(result.payload) END AS output,
    CASE WHEN s.status <> 'completed' THEN payload_json(result.payload) END AS error,
    coalesce(result.data ->> 'errorCode', '') AS error_code,
    s.created_at, s.started_at, s.completed_at AS ended_at, s.retry_after,
    coalesce(input.data -> 'step' ->> 'childId', '') AS child_run_id
FROM steps s
JOIN runs r ON r.id = s.run_id
LEFT JOIN events input ON input.run_id = s.run_id AND input.seq = s.created_seq
LEFT JOIN events result ON result.run_id = s.run_id AND result.seq = s.result_seq;

-- The token of a webhook is a secret: who has it can resume the hook.
CREATE VIEW v_hooks AS
SELECT h.run_id, h.id AS hook_id, h.project, CASE WHEN NOT h.is_webhook THEN h.token END AS token, h.is_webhook,
    h.signal, payload_json(e.payload) AS metadata, h.created_at, h.expires_at
FROM hooks h
LEFT JOIN events e ON e.run_id = h.run_id AND e.seq = h.created_seq;

CREATE VIEW v_store AS
SELECT v.run_id, r.project, v.key, payload_json(convert_to(v.value, 'UTF8')) AS value, v.seq
FROM run_store v JOIN runs r ON r.id = v.run_id;

CREATE VIEW v_attributes AS
SELECT a.run_id, a.project, a.workflow_name AS workflow, a.key, a.value, a.created_at FROM run_attributes a;

CREATE VIEW v_waits AS
SELECT w.run_id, w.id AS wait_id, r.project, r.workflow_name AS workflow, w.status, w.resume_at, w.created_at,
    w.completed_at AS ended_at
FROM waits w JOIN runs r ON r.id = w.run_id;

CREATE VIEW v_signals AS
SELECT s.id AS signal_id, s.project, s.name, s.key AS idempotency_key, payload_json(s.data) AS data,
    s.root_id AS root_run_id, s.created_at, s.expires_at
FROM signals s;

CREATE VIEW v_pauses AS
SELECT p.project, p.kind, p.name, p.note, p.paused_by, p.paused_at FROM pauses p WHERE p.resumed_at IS NULL;
