-- +goose Up
-- How the health of a deployment is probed, as JSON; NULL if it is not.
ALTER TABLE deployments ADD health jsonb;
-- When it was probed last, how many of the last probes failed or succeeded one after another, and why the last one
-- failed.
ALTER TABLE deployments ADD probed_at timestamptz;
ALTER TABLE deployments ADD probe_failures integer NOT NULL DEFAULT 0;
ALTER TABLE deployments ADD probe_successes integer NOT NULL DEFAULT 0;
ALTER TABLE deployments ADD probe_error text NOT NULL DEFAULT '';
-- Set while it is unhealthy: since when, and when one call is made to see.
ALTER TABLE deployments ADD unhealthy_since timestamptz;
ALTER TABLE deployments ADD held_until timestamptz;

-- +goose Down
DELETE FROM messages WHERE work = 'probe';
ALTER TABLE deployments DROP held_until;
ALTER TABLE deployments DROP unhealthy_since;
ALTER TABLE deployments DROP probe_error;
ALTER TABLE deployments DROP probe_successes;
ALTER TABLE deployments DROP probe_failures;
ALTER TABLE deployments DROP probed_at;
ALTER TABLE deployments DROP health;
