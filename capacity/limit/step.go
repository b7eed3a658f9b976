package limit

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// InsertWaiting adds the permits of a message that the statement stores, for a step of the run. They wait: a pass
// grants them, after the commit.
func InsertWaiting(w pg.Writer, m message.Message, id string) {
	names, keys, tenants, costs := columnsOf(m.Limits.Uses)
	w.Add(pg.Write{What: "insert permits of a step", Rows: len(names), SQL: `
		INSERT INTO permits (holder, message_id, run_id, project, name, key, tenant, cost, created_at, rank_at, not_before,
			until)
		SELECT $1::text, $1::text, $2::text, $3::text, u.*, now(), now() + $8::interval - $9::interval,
			CASE WHEN $8::interval > '0' THEN now() + $8::interval END, $10::timestamptz
		FROM unnest($4::text[], $5::text[], $6::text[], $7::integer[]) AS u (name, key, tenant, cost)
		WHERE true`, Args: []any{
		id, m.RunID, m.Project, names, keys, tenants, costs, m.Delay, m.Limits.Priority, m.Limits.Until,
	}})
}

// tooSmall is the condition that a limit l can never have room for a use u.
const tooSmall = `u.cost > least(nullif(l.per_key, 0), nullif(l.total, 0), nullif(l.burst, 0))`

// requireNone makes a conditional statement depend on that for none of the uses u a condition holds, in which l is the
// limit; its columns are null if there is no such limit.
func requireNone(c *pg.Conditional, project entities.Project, uses []entities.LimitUse, condition string) {
	names, keys, _, costs := columnsOf(uses)
	c.Require(`NOT EXISTS (
		SELECT FROM unnest($2::text[], $3::text[], $4::integer[]) AS u (name, key, cost)
			LEFT JOIN limits l ON l.project = $1::text AND l.name = u.name
		WHERE `+condition+`)`, project, names, keys, costs)
}

// RequireKnown makes a conditional statement depend on that [Settings.Check] finds no fault.
func RequireKnown(c *pg.Conditional, project entities.Project, uses []entities.LimitUse) {
	requireNone(c, project, uses, `l.name IS NULL OR `+tooSmall)
}

// RequireFits makes a conditional statement depend on that [Settings.CheckCosts] finds no fault.
func RequireFits(c *pg.Conditional, project entities.Project, uses []entities.LimitUse) {
	requireNone(c, project, uses, tooSmall)
}

// Settings are the limits that uses name, by their names.
type Settings map[string]Limit

// LoadSettings queues a read of the limits that the uses name, without locks.
func LoadSettings(b *pgx.Batch, project entities.Project, uses []entities.LimitUse) Settings {
	return loadSettings(b, project, uses, "")
}

func loadSettings(b *pgx.Batch, project entities.Project, uses []entities.LimitUse, lock string) Settings {
	s := Settings{}
	names, _, _, _ := columnsOf(uses)
	pg.LoadEach(b, func(l Limit) { s[l.Name] = l },
		`SELECT `+columns+` FROM limits WHERE project = $1 AND name = ANY ($2)`+lock, project, names)
	return s
}

// Check fails with [ErrNotFound] if a limit does not exist, and with [entities.ErrInvalid] if it can never have room
// for the use.
func (s Settings) Check(uses []entities.LimitUse) error {
	for _, u := range uses {
		if _, ok := s[u.Name]; !ok {
			return pg.Wrap(ErrNotFound, "limit %s", u.Name)
		}
	}
	return s.CheckCosts(uses)
}

// CheckCosts fails with [entities.ErrInvalid] if a limit can never have room for the use. One that does not exist
// bounds nothing.
func (s Settings) CheckCosts(uses []entities.LimitUse) error {
	for _, u := range uses {
		l := s[u.Name]
		if most := l.Most(); most > 0 && CostOf(u) > most {
			return entities.Invalid("limit %s: a cost of %d is more than its %d slots", u.Name, CostOf(u), most)
		}
	}
	return nil
}

// Unshared returns the uses without those whose slot an ancestor holds: the same key of the same limit, with at least
// as many slots. A limit that is only a rate has no slots to share.
func (s Settings) Unshared(uses, ancestors []entities.LimitUse) []entities.LimitUse {
	var rest []entities.LimitUse
	for _, u := range uses {
		l := s[u.Name]
		if l.PerKey == 0 && l.Total == 0 || !MayShare(u, ancestors) {
			rest = append(rest, u)
		}
	}
	return rest
}

// MayShare reports whether one of the ancestors' uses has the slots of the use, unless the limit is only a rate.
func MayShare(u entities.LimitUse, ancestors []entities.LimitUse) bool {
	for _, has := range ancestors {
		if has.Name == u.Name && has.Key == u.Key && CostOf(has) >= CostOf(u) {
			return true
		}
	}
	return false
}

// OfStep returns the limits of which the work of a run's step needs slots, for work that got lost; nil for none.
func OfStep(
	ctx context.Context, tx pgx.Tx, project entities.Project, run entities.RunID, spec entities.StepSpec,
) (*message.Limits, error) {
	var b pgx.Batch
	var ancestors []entities.LimitUse
	s := LoadSettings(&b, project, spec.Limits)
	LoadAncestors(&b, project, run, &ancestors)
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return nil, pg.Wrap(err, "read limits of a step")
	}
	return message.LimitsOf(spec, s.Unshared(spec.Limits, ancestors)), nil
}

// MessageWaits is the condition that the message m, for a step, waits for a slot. Only [Pass] changes that, and it
// locks the message first.
const MessageWaits = `EXISTS (SELECT FROM permits w WHERE w.message_id = m.id AND w.granted_at IS NULL)`

// Return is a write for a statement that has released messages after a failed attempt, and returns their id and
// not_before from the CTE "failed": their permits wait again, until the pause is over.
const Return = `
	UPDATE permits p SET granted_at = NULL, passed = 0, not_before = failed.not_before
	FROM failed WHERE p.message_id = failed.id`

// EndPause ends the pauses of the permits of the messages $1.
const EndPause = `
	UPDATE permits SET not_before = now()
	WHERE message_id = ANY ($1) AND granted_at IS NULL AND not_before > now()`

// Expire lets go the messages of steps whose deadline has passed while they waited for a slot, with the body that
// says so. It returns how many.
func Expire(ctx context.Context, pool *pgxpool.Pool, body []byte) (int, error) {
	tag, err := pg.NewPool(pool).Exec(ctx, `
		WITH late AS MATERIALIZED (
			SELECT id FROM messages
			WHERE id = ANY (ARRAY(SELECT message_id FROM permits WHERE granted_at IS NULL AND until <= now() LIMIT $1))
				AND `+pg.Staying("project")+`
			ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
		), gone AS (
			DELETE FROM permits WHERE message_id = ANY (ARRAY(SELECT id FROM late)) AND granted_at IS NULL
			RETURNING message_id
		)
		UPDATE messages SET due_at = now(), body = $2
		WHERE id = ANY (ARRAY(SELECT message_id FROM gone)) AND lease = ''`, perPass, body)
	return int(tag.RowsAffected()), pg.Wrap(err, "end waits for limits")
}
