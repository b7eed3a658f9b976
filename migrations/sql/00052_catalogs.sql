-- +goose Up
-- The versions of catalogs: steps by what they take and give. The plan that is made of one for a run is a version of the
-- flow with the catalog's name. The documents never change.
CREATE TABLE catalogs (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL CONSTRAINT catalogs_version_check CHECK (version > 0),
    -- The SHA-256 of the document's values, in their order, without comments and spaces.
    digest     bytea NOT NULL,
    document   text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (project, name, version)
);

-- +goose Down
DROP TABLE catalogs;
