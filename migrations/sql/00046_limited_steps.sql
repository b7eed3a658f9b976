-- +goose Up
-- When a step stops waiting for a place: at its deadline. NULL for never.
ALTER TABLE permits ADD until timestamptz;
CREATE INDEX permits_until_idx ON permits (until) WHERE granted_at IS NULL AND until IS NOT NULL;

-- The limits of the run's steps, by their names, as in its first event; NULL for none.
ALTER TABLE runs ADD step_limits jsonb;

-- The limits of the steps of a policy's workflow, by their names; NULL for none.
ALTER TABLE policies ADD steps jsonb;

-- +goose Down
ALTER TABLE policies DROP steps;
ALTER TABLE runs DROP step_limits;
ALTER TABLE permits DROP until;
