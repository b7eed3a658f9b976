-- Projects that move to another cell (admin/move).

-- +goose Up
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

-- The cell of the process; empty for none.
ALTER TABLE processes ADD COLUMN cell text COLLATE "C" NOT NULL DEFAULT '';

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

-- +goose Down
DROP FUNCTION refuse_write CASCADE;
ALTER TABLE processes DROP COLUMN cell;
DROP TABLE arrived_epochs, arrivals, departures;
