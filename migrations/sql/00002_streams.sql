-- +goose Up

-- Streams are keyed by name: a reader may open one before it is written and without knowing its run.
CREATE TABLE streams (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- Only groups streams: health checks write with IDs of runs that do not exist.
    run_id     text COLLATE "C" NOT NULL,
    chunks     bigint NOT NULL CONSTRAINT streams_chunks_check CHECK (chunks >= 0),
    created_at timestamptz NOT NULL,
    closed_at  timestamptz,
    CONSTRAINT streams_name_key UNIQUE (project, name)
) WITH (fillfactor = 80);
CREATE INDEX streams_run_idx ON streams (project, run_id, name);

CREATE TABLE stream_chunks (
    stream_id bigint NOT NULL REFERENCES streams (id) ON DELETE CASCADE,
    idx       bigint NOT NULL CONSTRAINT stream_chunks_idx_check CHECK (idx >= 0),
    data      bytea NOT NULL,
    PRIMARY KEY (stream_id, idx)
);

-- +goose Down
DROP TABLE stream_chunks, streams;
