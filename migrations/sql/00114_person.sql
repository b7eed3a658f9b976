-- People who sign in by an identity provider have a key in each project that their groups open.

-- +goose Up
-- The issuer and subject of the person; empty for a key of programs. The hash of a person's key is random, so no text
-- is that key.
ALTER TABLE api_keys ADD COLUMN person text COLLATE "C" NOT NULL DEFAULT '';
CREATE UNIQUE INDEX api_keys_person_key ON api_keys (person, project) WHERE person <> '' AND revoked_at IS NULL;

-- +goose Down
DROP INDEX api_keys_person_key;
ALTER TABLE api_keys DROP COLUMN person;
