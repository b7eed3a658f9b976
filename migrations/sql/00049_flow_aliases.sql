-- +goose Up
-- A version of a flow that is retired begins no new runs. It is set on the deployment, which starts read.
ALTER TABLE deployments ADD COLUMN retired_at timestamptz;

-- Names for versions of flows. New runs that are started by one have the version that it points to.
CREATE TABLE flow_aliases (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    alias      text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    -- How starts name it: NAME@ALIAS, where those of deployments are NAME@VERSION.
    id         text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name, alias),
    UNIQUE (project, id),
    FOREIGN KEY (project, name, version) REFERENCES flow_versions (project, name, version)
);

-- +goose Down
DROP TABLE flow_aliases;
ALTER TABLE deployments DROP COLUMN retired_at;
