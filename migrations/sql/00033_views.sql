-- +goose Up

-- Lists of runs that a project has saved under a name.
CREATE TABLE views (
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- A filter of the dashboard, as text.
    filter     text NOT NULL,
    -- The columns that are shown, in their order; none for the usual ones.
    columns    text[] NOT NULL,
    order_by   text COLLATE "C" NOT NULL CONSTRAINT views_order_by_check CHECK (order_by IN ('created', 'ended')),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);

-- +goose Down
DROP TABLE views;
