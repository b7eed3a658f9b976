package schedule

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

// keptTicks is how many decisions of a schedule are kept.
const keptTicks = 1000

const columns = `project, name, id, cron, every, time_zone, workflow, deployment, input, attributes, timeout, overlap,
	catch_up, catch_up_window, jitter, paused_at, pause_note, decided_until, next_at, waiting_at, run_id, backfill_at,
	backfill_until, backfill_repeat, backfill_run_id, ticks, revision, created_at, updated_at,
	from_at, until_at, waiting_more`

const tickColumns = `kind, at, decision, run_id, reason, count, last_at, seq, decided_at`

// ByName reads a schedule. It fails with [ErrNotFound].
func ByName(ctx context.Context, q pg.Querier, project entities.Project, name string) (Schedule, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM schedules WHERE project = $1 AND name = $2`, project, name)
	s, err := pg.CollectOne[Schedule](rows, err, ErrNotFound)
	return s, pg.Wrap(err, "read schedule %s", name)
}

// ByID reads a schedule. It fails with [ErrNotFound].
func ByID(ctx context.Context, q pg.Querier, project entities.Project, id ID) (Schedule, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM schedules WHERE id = $1 AND project = $2`, id, project)
	s, err := pg.CollectOne[Schedule](rows, err, ErrNotFound)
	return s, pg.Wrap(err, "read schedule %s", id)
}

// List reads a page of the project's schedules, ordered by name, and the cursor of the next page; empty after the last.
func List(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page,
) (list []Schedule, next string, err error) {
	from := pg.Keyed{Table: "schedules", Key: "name", Columns: columns}
	return pg.ListKeyed(ctx, q, from, project, p, func(s Schedule) string { return s.Name })
}

// ListTicks reads a page of the decisions of a schedule in the order in which they were made, and the cursor of the
// next page; empty after the last. It fails with a [pg.CursorError] on a cursor of another list.
func ListTicks(ctx context.Context, q pg.Querier, id ID, p pg.Page) (list []Tick, next string, err error) {
	from := pg.Numbered{Table: "schedule_ticks", Owner: "schedule_id", Columns: tickColumns}
	return pg.ListNumbered(ctx, q, from, string(id), p, func(t Tick) int64 { return t.Seq })
}

// LastTick reads the last decision about a tick that came by itself; nil if there is none.
func LastTick(ctx context.Context, q pg.Querier, id ID) (*Tick, error) {
	list, err := pg.CollectAll[Tick](q.Query(ctx, `
		SELECT `+tickColumns+` FROM schedule_ticks WHERE schedule_id = $1 AND kind = 'tick' ORDER BY at DESC LIMIT 1`, id))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "read last tick")
	}
	return &list[0], nil
}

// StartedTicks reads the ticks of the backfill under way that have started a run before it reaches them.
func StartedTicks(ctx context.Context, q pg.Querier, s Schedule) ([]Tick, error) {
	list, err := pg.CollectAll[Tick](q.Query(ctx, `
		SELECT `+tickColumns+` FROM schedule_ticks
		WHERE schedule_id = $1 AND kind IN ('tick', 'backfill') AND at > $2 AND at <= $3 AND decision = 'started'`,
		s.ID, s.BackfillAt, s.BackfillUntil))
	return list, pg.Wrap(err, "read started ticks")
}

// Lock queues a statement that locks a schedule until the transaction ends. The check that it returns fails with
// [ErrChanged] if the schedule is not as it was read.
func Lock(b *pgx.Batch, s Schedule) (check func() error) {
	var row *struct{ Revision int64 }
	pg.LoadInto(b, &row, `SELECT revision FROM schedules WHERE id = $1 FOR UPDATE`, s.ID)
	return func() error {
		if row == nil || row.Revision != s.Revision {
			return ErrChanged
		}
		return nil
	}
}

// RequireUnchanged makes a conditional statement depend on that a schedule is as it was read. It locks the schedule
// until the transaction ends, and does not wait for others that have: the statement then does not apply.
func RequireUnchanged(c *pg.Conditional, s Schedule) {
	c.Require(`EXISTS (SELECT FROM schedules WHERE id = $1::text AND revision = $2::bigint FOR UPDATE SKIP LOCKED)`,
		s.ID, s.Revision)
}

// Create queues the insertion of a schedule, unless the project has too many. The check that it returns then fails with
// [ErrTooMany], and with [ErrChanged] if there is one of the same name.
func Create(b *pgx.Batch, s Schedule) (check func() error) {
	var found *struct{ Count, Same int64 }
	// Without the lock, two transactions could both create the last schedule.
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('schedules ' || $1::text, 0))`, s.Project)
	pg.LoadInto(b, &found, `
		SELECT count(*) AS count, count(*) FILTER (WHERE name = $2) AS same FROM schedules WHERE project = $1`,
		s.Project, s.Name)
	b.Queue(`
		INSERT INTO schedules (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
			$24, $25, $26, $27, $28, $29, $30, $31, $32)
		ON CONFLICT DO NOTHING`, s.values()...)
	return func() error {
		switch {
		case found.Same > 0:
			return ErrChanged
		case found.Count >= MaxSchedules:
			return ErrTooMany
		default:
			return nil
		}
	}
}

// Update writes the replacement of a locked schedule.
func Update(w pg.Writer, s Schedule) {
	s.Revision++
	w.Add(pg.Write{What: "update schedule", SQL: `
		UPDATE schedules SET (` + columns + `) = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
			$18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)
		WHERE id = $3`, Args: s.values()})
}

// PassOn queues that a schedule waits for the end of another run instead of one that it has started, with whose work
// that goes on: the first one may be deleted before the last one ends.
func PassOn(b *pgx.Batch, project entities.Project, name string, from, to entities.RunID) {
	b.Queue(`
		UPDATE schedules SET revision = revision + 1, run_id = CASE WHEN run_id = $3 THEN $4 ELSE run_id END,
			backfill_run_id = CASE WHEN backfill_run_id = $3 THEN $4 ELSE backfill_run_id END
		WHERE project = $1 AND name = $2 AND $3 IN (run_id, backfill_run_id)`, project, name, from, to)
}

// Payloads implements [atrest.Row].
func (s *Schedule) Payloads(o *atrest.Opener) { o.Bytes(s.input().Place, &s.Input) }

// input returns the input as an argument.
func (s *Schedule) input() atrest.Payload {
	return atrest.Payload{
		Place:   atrest.Place{Kind: atrest.Schedule, Owner: string(s.ID)},
		Project: string(s.Project), Bytes: append([]byte{}, s.Input...),
	}
}

// values returns the values of columns.
func (s Schedule) values() []any {
	if s.Attributes == nil {
		s.Attributes = map[string]string{}
	}
	return []any{
		s.Project, s.Name, s.ID, s.Cron, s.Every, s.TimeZone, s.Workflow, s.Deployment, s.input(),
		s.Attributes, s.Timeout, s.Overlap, s.CatchUp, s.CatchUpWindow, s.Jitter, s.PausedAt, s.PauseNote,
		s.DecidedUntil, s.NextAt, s.WaitingAt, s.RunID, s.BackfillAt, s.BackfillUntil, s.BackfillRepeat, s.BackfillRunID,
		s.Ticks, s.Revision, s.CreatedAt, s.UpdatedAt, s.FromAt, s.UntilAt, append([]time.Time{}, s.WaitingMore...),
	}
}

// Delete queues the deletion of a locked schedule with its ticks.
func Delete(b *pgx.Batch, s Schedule) {
	b.Queue(`DELETE FROM schedule_ticks WHERE schedule_id = $1`, s.ID)
	b.Queue(`DELETE FROM schedules WHERE id = $1`, s.ID)
}

// Record writes the decision about a tick of a locked schedule. It replaces the decision that the tick waits, and that
// of an earlier backfill; any other decision is final, and makes the transaction fail. A conditional statement can
// replace none.
func Record(w pg.Writer, s Schedule, t Tick) {
	w.Add(pg.Write{SQL: `
		DELETE FROM schedule_ticks
		WHERE schedule_id = $1 AND (kind = $2 AND at = $3 AND (decision = 'waiting' OR kind = 'backfill')
			OR seq <= $4 AND decision <> 'waiting')`, Args: []any{s.ID, t.Kind, t.At, t.Seq - keptTicks}})
	w.Add(pg.Write{What: "record tick", SQL: `
		INSERT INTO schedule_ticks (project, schedule_id, ` + tickColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::timestamptz, $5::text, $6::text, $7::text, $8::bigint, $9::timestamptz,
			$10::bigint, $11::timestamptz WHERE true`, Args: []any{
		s.Project, s.ID, t.Kind, t.At, t.Decision, t.RunID, t.Reason, t.Count, t.LastAt, t.Seq, t.DecidedAt,
	}})
}
