-- Ended runs of a project that moves are copied before it is refused writes (admin/move).

-- +goose Up
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

-- +goose Down
DROP FUNCTION note_change CASCADE;
DROP TABLE arriving, leaving_changes, leaving;
