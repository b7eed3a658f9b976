package trigger

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// keptEvents is how much of a trigger's history is kept, and keptSkipped how much of what was skipped.
	keptEvents  = 1000
	keptSkipped = 100
)

const columns = `project, name, id, kind, source, condition, statuses, verify, secret, workflow, deployment, input,
	attributes, unique_key, joins, timeout, paused_at, pause_note, revision, created_at, updated_at, options`

const eventColumns = `event, decision, run_id, reason, decided_at, seq`

// ByName reads a trigger. It fails with [ErrNotFound].
func ByName(ctx context.Context, q pg.Querier, project entities.Project, name string) (Trigger, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM triggers WHERE project = $1 AND name = $2`, project, name)
	t, err := pg.CollectOne[Trigger](rows, err, ErrNotFound)
	return t, pg.Wrap(err, "read trigger %s", name)
}

// ByID reads a trigger. It fails with [ErrNotFound].
func ByID(ctx context.Context, q pg.Querier, project entities.Project, id ID) (Trigger, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM triggers WHERE id = $1 AND project = $2`, id, project)
	t, err := pg.CollectOne[Trigger](rows, err, ErrNotFound)
	return t, pg.Wrap(err, "read trigger %s", id)
}

// For reads the triggers that wait for the same and are not paused, ordered by ID.
func For(
	ctx context.Context, q pg.Querier, project entities.Project, kind Kind, source string,
) ([]Trigger, error) {
	list, err := pg.CollectAll[Trigger](q.Query(ctx, `
		SELECT `+columns+` FROM triggers
		WHERE project = $1 AND kind = $2 AND source = $3 AND paused_at IS NULL ORDER BY id`, project, kind, source))
	return list, pg.Wrap(err, "read triggers")
}

// ByToken reads the trigger with the webhook of the token. It fails with [ErrNotFound], also if it is paused.
func ByToken(ctx context.Context, q pg.Querier, project entities.Project, token string) (Trigger, error) {
	list, err := For(ctx, q, project, KindWebhook, token)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Trigger{}, err
	}
	return list[0], nil
}

// OnEnd is a trigger that waits for the ends of a workflow's runs.
type OnEnd struct {
	ID       ID
	Name     string
	Statuses []entities.RunStatus
}

// LoadOnEnd queues a read of the triggers that wait for the end of a run.
func LoadOnEnd(b *pgx.Batch, project entities.Project, id entities.RunID, into *[]OnEnd) {
	pg.LoadEach(b, func(t OnEnd) { *into = append(*into, t) }, `
		SELECT t.id, t.name, t.statuses
		FROM runs r JOIN triggers t ON t.project = r.project AND t.kind = 'runEnded' AND t.source = r.workflow_name
		WHERE r.id = $1 AND r.project IS NOT DISTINCT FROM $2 AND t.paused_at IS NULL ORDER BY t.id`, id, project)
}

// RequireNoneOnEnd makes a conditional statement that ends a run depend on that no trigger waits for that.
func RequireNoneOnEnd(c *pg.Conditional, project entities.Project, workflow string) {
	c.Require(`NOT EXISTS (
		SELECT FROM triggers
		WHERE project = $1 AND kind = 'runEnded' AND source = $2 AND paused_at IS NULL)`, project, workflow)
}

// List reads a page of the project's triggers, ordered by name, and the cursor of the next page; empty after the last.
func List(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page,
) (list []Trigger, next string, err error) {
	from := pg.Keyed{Table: "triggers", Key: "name", Columns: columns}
	return pg.ListKeyed(ctx, q, from, project, p, func(t Trigger) string { return t.Name })
}

// History reads a page of what became of the events of a trigger, in the order of the decisions, and the cursor of the
// next page; empty after the last. It fails with a [pg.CursorError] on a cursor of another list.
func History(ctx context.Context, q pg.Querier, id ID, p pg.Page) (list []Event, next string, err error) {
	from := pg.Numbered{Table: "trigger_events", Owner: "trigger_id", Columns: eventColumns}
	return pg.ListNumbered(ctx, q, from, string(id), p, func(e Event) int64 { return e.Seq })
}

// EventByID reads what became of an event; nil if the history does not have it.
func EventByID(ctx context.Context, q pg.Querier, id ID, event string) (*Event, error) {
	list, err := pg.CollectAll[Event](q.Query(ctx, `
		SELECT `+eventColumns+` FROM trigger_events WHERE trigger_id = $1 AND event = $2`, id, event))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "read event of trigger")
	}
	return &list[0], nil
}

// LockShared queues a statement that keeps a trigger as it is until the transaction ends. The check that it returns
// fails with [ErrChanged] if it is not as it was read.
func LockShared(b *pgx.Batch, t Trigger) (check func() error) { return lock(b, t, `FOR SHARE`) }

// Lock is [LockShared] for a transaction that changes the trigger.
func Lock(b *pgx.Batch, t Trigger) (check func() error) { return lock(b, t, `FOR UPDATE`) }

func lock(b *pgx.Batch, t Trigger, how string) (check func() error) {
	var row *struct{ Revision int64 }
	pg.LoadInto(b, &row, `SELECT revision FROM triggers WHERE id = $1 `+how, t.ID)
	return func() error {
		if row == nil || row.Revision != t.Revision {
			return ErrChanged
		}
		return nil
	}
}

// Reserve queues the check that the project may have one more trigger, and one more that waits for the same. The check
// that it returns then fails with [ErrTooMany], and with [ErrChanged] if there is one of the same name already. A
// trigger with an ID is not counted: it is to change.
func Reserve(b *pgx.Batch, t Trigger) (check func() error) {
	var found *struct{ Count, Equal, Named int64 }
	// Without the lock, two transactions could both create the last trigger.
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('triggers ' || $1::text, 0))`, t.Project)
	pg.LoadInto(b, &found, `
		SELECT count(*) AS count, count(*) FILTER (WHERE kind = $2 AND source = $3) AS equal,
			count(*) FILTER (WHERE name = $4) AS named
		FROM triggers WHERE project = $1 AND id <> $5`, t.Project, t.Kind, t.Source, t.Name, t.ID)
	return func() error {
		switch {
		case found.Named > 0:
			return ErrChanged
		case found.Count >= MaxTriggers || found.Equal >= MaxSame:
			return ErrTooMany
		default:
			return nil
		}
	}
}

// Insert queues the insertion of a trigger.
func Insert(b *pgx.Batch, t Trigger) {
	b.Queue(`
		INSERT INTO triggers (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`,
		t.values()...)
}

// Update queues the replacement of a locked trigger.
func Update(b *pgx.Batch, t Trigger) {
	b.Queue(`
		UPDATE triggers SET (`+columns+`) = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
			$18, $19, $20, $21, $22)
		WHERE id = $3`, t.values()...)
}

// Payloads implements [atrest.Row].
func (t *Trigger) Payloads(o *atrest.Opener) { o.Bytes(t.input().Place, &t.Input) }

// input returns the input as an argument.
func (t *Trigger) input() atrest.Payload {
	return atrest.Payload{
		Place:   atrest.Place{Kind: atrest.Trigger, Owner: string(t.ID)},
		Project: string(t.Project), Bytes: append([]byte{}, t.Input...),
	}
}

// values returns the values of columns.
func (t Trigger) values() []any {
	if t.Attributes == nil {
		t.Attributes = map[string]string{}
	}
	statuses := make([]string, len(t.Statuses))
	for i, s := range t.Statuses {
		statuses[i] = string(s)
	}
	return []any{
		t.Project, t.Name, t.ID, t.Kind, t.Source, t.Condition, statuses, t.Verify, t.Secret, t.Workflow,
		t.Deployment, t.input(), t.Attributes, t.UniqueKey, t.Joins, t.Timeout, t.PausedAt, t.PauseNote,
		t.Revision, t.CreatedAt, t.UpdatedAt, t.Options,
	}
}

// Delete queues the deletion of a locked trigger with its history.
func Delete(b *pgx.Batch, t Trigger) { b.Queue(`DELETE FROM triggers WHERE id = $1`, t.ID) }

// Record queues the insertion of what became of an event. It replaces what became of it before, unless that was final:
// then the batch fails, and [IsRepeated] reports true of its error.
func Record(b *pgx.Batch, t Trigger, e Event) {
	b.Queue(`
		DELETE FROM trigger_events
		WHERE trigger_id = $1 AND event = $2 AND decision NOT IN ('started', 'joined', 'collected')`,
		t.ID, e.Event)
	b.Queue(`
		INSERT INTO trigger_events (trigger_id, project, event, decision, run_id, reason, decided_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, t.ID, t.Project, e.Event, e.Decision, e.RunID, e.Reason, e.DecidedAt)
}

// IsRepeated reports whether a transaction failed because the event has its run already.
func IsRepeated(err error) bool { return pg.ViolatedConstraint(err) == "trigger_events_pkey" }

// IsDeleted reports whether a transaction failed because the trigger was deleted.
func IsDeleted(err error) bool { return pg.ViolatedConstraint(err) == "trigger_events_trigger_id_fkey" }

// Prune deletes the oldest part of the history of triggers that have much of it.
func Prune(ctx context.Context, q pg.Pool) error {
	_, err := q.Exec(ctx, `
		DELETE FROM trigger_events e USING triggers t,
			LATERAL (SELECT seq FROM trigger_events WHERE trigger_id = t.id ORDER BY seq DESC OFFSET $1 LIMIT 1) AS oldest
		WHERE e.trigger_id = t.id AND `+pg.Staying("t.project")+` AND e.seq <= oldest.seq
			AND (e.decision = 'skipped' OR e.seq <= (
			SELECT seq FROM trigger_events WHERE trigger_id = t.id AND decision <> 'skipped'
			ORDER BY seq DESC OFFSET $2 LIMIT 1))`, keptSkipped, keptEvents)
	return pg.Wrap(err, "delete old events of triggers")
}

// Depth returns how many ends of runs led to a run, one after the other: what the attribute of the run says, or of a
// run of which it is a descendant.
func Depth(ctx context.Context, q pg.Querier, id entities.RunID) (depth int, err error) {
	texts, err := pg.CollectColumn[string](q.Query(ctx, `
		WITH RECURSIVE line AS (
			SELECT parent_id, attributes, 1 AS n FROM runs WHERE id = $1
			UNION ALL
			SELECT r.parent_id, r.attributes, n + 1 FROM line JOIN runs r ON r.id = line.parent_id
			WHERE line.parent_id <> '' AND n < 100
		)
		SELECT attributes ->> $2 FROM line WHERE attributes ? $2`, id, AttributeDepth))
	for _, text := range texts {
		if n, err := strconv.Atoi(text); err == nil { // a client of the Workflow SDK may have written anything
			depth = max(depth, n)
		}
	}
	return depth, pg.Wrap(err, "read line of runs")
}
