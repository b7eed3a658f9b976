-- +goose Up

-- Keys of the role worker register deployments: the one with this ID, or if it ends in *, all whose IDs begin like it.
-- Empty for other roles. Servers of the previous version allow such keys nothing.
ALTER TABLE api_keys
    ADD COLUMN deployments text NOT NULL DEFAULT '',
    DROP CONSTRAINT api_keys_role_check;
ALTER TABLE api_keys
    ADD CONSTRAINT api_keys_role_check CHECK (role IN ('admin', 'write', 'read', 'metadata', 'invoke', 'worker')),
    ADD CONSTRAINT api_keys_deployments_check CHECK ((role = 'worker') = (deployments <> ''));

-- What an app says about itself: the version of its program, and by workflow the JSON Schemas of input and output.
-- Constant defaults rewrite no rows. Servers of the previous version leave both as they are.
ALTER TABLE deployments
    ADD COLUMN build   text NOT NULL DEFAULT '',
    ADD COLUMN schemas jsonb NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE deployments DROP COLUMN build, DROP COLUMN schemas;
DELETE FROM api_keys WHERE role = 'worker';
ALTER TABLE api_keys DROP CONSTRAINT api_keys_deployments_check, DROP CONSTRAINT api_keys_role_check;
ALTER TABLE api_keys DROP COLUMN deployments,
    ADD CONSTRAINT api_keys_role_check CHECK (role IN ('admin', 'write', 'read', 'metadata', 'invoke'));
