-- +goose Up
-- What the document of a version means: the number of the interpreter's rules when it was put. A server that does not
-- know the number leaves the runs of the version to one that does.
ALTER TABLE flow_versions ADD COLUMN IF NOT EXISTS semantics integer NOT NULL DEFAULT 1
    CONSTRAINT flow_versions_semantics_check CHECK (semantics > 0);

-- +goose Down
ALTER TABLE flow_versions DROP COLUMN IF EXISTS semantics;
