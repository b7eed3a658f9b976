-- +goose Up
-- The versions of flows. Each is a deployment, whose ID it has, so that a run keeps the version that it was started
-- with, and the newest one is the newest deployment of the workflow. The documents never change.
CREATE TABLE flow_versions (
    project       text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    version       bigint NOT NULL CONSTRAINT flow_versions_version_check CHECK (version > 0),
    deployment_id text COLLATE "C" NOT NULL,
    -- The SHA-256 of the document's values, in their order, without comments and spaces.
    digest        bytea NOT NULL,
    document      text NOT NULL,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (project, name, version),
    UNIQUE (project, deployment_id),
    FOREIGN KEY (project, deployment_id) REFERENCES deployments (project, id) DEFERRABLE INITIALLY DEFERRED
);

-- +goose Down
DROP TABLE flow_versions;
