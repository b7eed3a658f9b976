package limit

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Apps of the Workflow SDK send a message for each of their steps (protocol §5.3). The message of a step that a policy
// limits needs slots as the work of other steps does, but is stored without knowledge of them. So it is held back when
// it is to be leased for the first time: it gets permits that wait, and a pass makes it due. From then on it has its
// permits until it is gone.

// stepTopic matches the topic of a step's message. What it captures is the step's name, in which all characters that
// topics cannot have are replaced.
const stepTopic = `'^__(?:[A-Za-z0-9-]+_)?wkf_step_(.*)$'`

// clientUses selects the uses of the limits of which the step with the topic needs slots, unless its run holds them.
func clientUses(project, run, topic string) string {
	return `
	SELECT u.name, coalesce(u.key, '') AS key, coalesce(nullif(u.tenant, ''), u.key, '') AS tenant,
		greatest(u.cost, 1) AS cost, coalesce((s.value->>'priorityMs')::float8, 0) AS priority
	FROM runs r, jsonb_array_elements(r.step_limits) AS s,
		jsonb_to_recordset(s.value->'limits') AS u (name text, key text, tenant text, cost integer)
	WHERE r.id = ` + run + ` AND r.project IS NOT DISTINCT FROM ` + project + ` AND r.step_limits IS NOT NULL
		AND regexp_replace(s.value->>'step', '[^A-Za-z0-9_-]', '-', 'g') = substring(` + topic + ` FROM ` + stepTopic + `)
		AND NOT EXISTS (
			SELECT FROM jsonb_to_recordset(r.limits) AS h (name text, key text, cost integer)
				JOIN limits l ON l.project = r.project AND l.name = h.name AND (l.per_key > 0 OR l.total > 0)
			WHERE h.name = u.name AND coalesce(h.key, '') = coalesce(u.key, '')
				AND greatest(h.cost, 1) >= greatest(u.cost, 1))`
}

// LimitsClientStep is the condition that a message with these columns is for a step of an app of the Workflow SDK that
// needs slots.
func LimitsClientStep(project, run, topic string) string {
	return `(` + run + ` <> '' AND ` + topic + ` ~ ` + stepTopic + ` AND EXISTS (` + clientUses(project, run, topic) + `))`
}

// MustHoldBack is the condition that the message m must be held back before it is leased; see [HoldBack].
var MustHoldBack = `(m.work = '' AND ` + LimitsClientStep("m.project", "m.run_id", "m.topic") + `
	AND NOT EXISTS (SELECT FROM permits p WHERE p.message_id = m.id))`

// HoldBack has a message that meets a condition wait for its slots, and be due at the time gated; both are SQL. It
// returns what the message waits for; nothing if it needs no slots. A limit that rejects has it wait, too: the step
// has been created, and nobody would learn of it.
func HoldBack(
	ctx context.Context, pool *pgxpool.Pool, condition, gated string, args ...any,
) ([]entities.LimitUse, error) {
	uses, err := pg.CollectAll[entities.LimitUse](pg.NewPool(pool).Query(ctx, `
		WITH held AS (
			UPDATE messages m SET due_at = `+gated+`, ticket = ticket + 1
			WHERE `+condition+` AND `+MustHoldBack+`
			RETURNING id, project, run_id, topic
		)
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at, not_before)
		SELECT m.id, m.id, m.run_id, m.project, u.name, u.key, u.tenant, u.cost, now(),
			now() - make_interval(secs => u.priority / 1000), now()
		FROM held m, LATERAL (`+clientUses("m.project", "m.run_id", "m.topic")+`) AS u
		RETURNING name, key, tenant, cost`, args...))
	return uses, pg.Wrap(err, "have a step wait for its limits")
}

// OfClientStep returns the limits of which a step with the topic needs slots.
func OfClientStep(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, run entities.RunID, topic string,
) ([]entities.LimitUse, error) {
	uses, err := pg.CollectAll[entities.LimitUse](pg.NewPool(pool).Query(ctx, `
		SELECT name, key, tenant, cost FROM (`+clientUses("$1", "$2", "$3")+`) AS u`, project, run, topic))
	return uses, pg.Wrap(err, "read the limits of a step")
}

// DropOfParked is a write for a statement that has parked messages, and returns their id from the CTE "moved", with
// parked_at: they hold no slots, and are held back again when somebody retries them.
const DropOfParked = `
	DELETE FROM permits WHERE message_id = ANY (ARRAY(SELECT id FROM moved WHERE parked_at IS NOT NULL))`
