-- Large payloads are objects in a bucket or a folder (eventlog/blob).

-- +goose Up
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

-- The size of a payload of which the event has only the reference; NULL if the event has the payload.
ALTER TABLE events ADD COLUMN blob_size bigint;

-- +goose Down
ALTER TABLE events DROP COLUMN blob_size;
DROP TABLE blobs;
