package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// State is the state of a message in the queue.
type State string

// The states of messages.
const (
	// StateWaiting: the message waits for its delay or backoff to end, or for a worker.
	StateWaiting State = "waiting"
	// StateLeased: the message is being delivered, or processed by its function.
	StateLeased State = "leased"
	// StateParked: the message failed too often. It is not delivered again until an operator retries it.
	StateParked State = "parked"
)

// conditions select the rows of a state.
var conditions = map[State]string{
	"":           `true`,
	StateWaiting: `parked_at IS NULL AND lease = ''`,
	StateLeased:  `parked_at IS NULL AND lease > ''`,
	StateParked:  `parked_at IS NOT NULL`,
}

// Entry is a message in the queue, without its body.
type Entry struct {
	ID           string
	Topic        string
	DeploymentID string
	// RunID is the message's run; empty if its sender gave none.
	RunID entities.RunID
	// Work is the kind of work, if the server itself does it. Subject is the step, hook or signal it concerns.
	Work    message.Work
	Subject string
	State   State
	// DeliveryCount is how many deliveries may have reached the function.
	DeliveryCount int
	// LastError is why the last delivery failed; empty if none has failed.
	LastError string
	CreatedAt time.Time
	// DueAt is when the message is delivered next, or when its lease expires. It has no meaning for parked messages.
	DueAt time.Time
	// ParkedAt is set if and only if the message is parked.
	ParkedAt *time.Time
}

const entryColumns = `id, topic, deployment_id, run_id, work, subject, delivery_count, last_error,
	created_at, due_at, parked_at,
	CASE WHEN parked_at IS NOT NULL THEN 'parked' WHEN lease <> '' THEN 'leased' ELSE 'waiting' END AS state`

// Filter narrows a list of messages; empty fields match everything.
type Filter struct {
	State State
	RunID entities.RunID
}

// Messages lists the project's messages that match the filter, in the order they were sent. Next is the cursor of the
// next page; it is empty on the last page. It fails with [entities.ErrInvalid] on an unknown state or a malformed
// cursor.
func (q *Queue) Messages(
	ctx context.Context, project entities.Project, f Filter, p pg.Page,
) (entries []Entry, next string, err error) {
	condition, ok := conditions[f.State]
	if !ok {
		return nil, "", entities.Invalid("state %q is none of waiting, leased and parked", f.State)
	}
	if p.Cursor != "" {
		if err := entities.ValidateID("cursor", p.Cursor); err != nil {
			return nil, "", err
		}
	}
	keyword, after := "ASC", ">"
	if p.Descending {
		keyword, after = "DESC", "<"
	}
	rows, err := pg.NewPool(q.pool).Query(ctx, `
		SELECT `+entryColumns+` FROM messages
		WHERE project = $1 AND ($2::text = '' OR id `+after+` $2) AND ($4::text = '' OR run_id = $4) AND `+condition+`
		ORDER BY id `+keyword+` LIMIT $3`, project, p.Cursor, p.Limit+1, f.RunID)
	if err != nil {
		return nil, "", fmt.Errorf("list messages: %w", err)
	}
	if entries, err = pgx.CollectRows(rows, pgx.RowToStructByName[Entry]); err != nil {
		return nil, "", fmt.Errorf("list messages: %w", err)
	}
	if len(entries) > p.Limit {
		entries = slices.Delete(entries, p.Limit, len(entries))
		next = entries[p.Limit-1].ID
	}
	return entries, next, nil
}

// Message reads a message of the project. It fails with [message.ErrMessageNotFound].
func (q *Queue) Message(ctx context.Context, project entities.Project, id string) (Entry, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx, `SELECT `+entryColumns+` FROM messages WHERE `+ofID, id, project)
	if err != nil {
		return Entry{}, fmt.Errorf("read message %s: %w", id, err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Entry])
	if errors.Is(err, pgx.ErrNoRows) {
		err = message.ErrMessageNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read message %s: %w", id, err)
	}
	return e, nil
}

// Retry makes a message due at once that is parked or waits after a failure, and resets its count of deliveries. It
// fails with [message.ErrMessageNotFound], and with [entities.ErrConflict] if the message has not failed or is leased.
func (q *Queue) Retry(ctx context.Context, project entities.Project, id string) (Entry, error) {
	var e Entry
	err := pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+entryColumns+` FROM messages WHERE `+ofID+` FOR UPDATE`,
			id, project)
		if err != nil {
			return err
		}
		before, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Entry])
		if errors.Is(err, pgx.ErrNoRows) {
			return message.ErrMessageNotFound
		}
		if err != nil {
			return err
		}
		if before.State == StateLeased || before.LastError == "" && before.State != StateParked {
			return fmt.Errorf("message is %s and cannot be retried: %w", before.State, entities.ErrConflict)
		}
		rows, err = tx.Query(ctx, `
			UPDATE messages SET parked_at = NULL, due_at = now(), delivery_count = 0, unreached = 0, cut_off = 0,
				first_failed_at = NULL
			WHERE id = $1
			RETURNING `+entryColumns, id)
		if err != nil {
			return err
		}
		if e, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Entry]); err != nil {
			return err
		}
		return audit(ctx, tx, project, admin.ActionMessageRetry, id, auditDetail(before))
	})
	if err != nil {
		return Entry{}, fmt.Errorf("retry message %s: %w", id, err)
	}
	q.announceDue(nil)
	return e, nil
}

// Discard deletes a message in any state together with its idempotency key, so that it can be sent again. If this
// strands its run, the sweeper wakes the run: for a run that the server continues, also if the message invoked it,
// since nobody can tell what its function has missed. It fails with [message.ErrMessageNotFound].
func (q *Queue) Discard(ctx context.Context, project entities.Project, id string) error {
	err := pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, awaitNow, id, project); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			WITH gone AS (
				DELETE FROM messages WHERE `+ofID+`
				RETURNING id, project, topic, deployment_id, run_id, work, subject, delivery_count, last_error,
					created_at, due_at, parked_at, lease
			), forgotten AS (
				DELETE FROM message_keys k USING gone
				WHERE (k.project, k.deployment_id, k.topic) = (gone.project, gone.deployment_id, gone.topic)
					AND k.message_id = gone.id
			)
			SELECT `+entryColumns+` FROM gone`, id, project)
		if err != nil {
			return err
		}
		gone, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Entry])
		if errors.Is(err, pgx.ErrNoRows) {
			return message.ErrMessageNotFound
		}
		if err != nil {
			return err
		}
		return audit(ctx, tx, project, admin.ActionMessageDiscard, id, auditDetail(gone))
	})
	if err != nil {
		return fmt.Errorf("discard message %s: %w", id, err)
	}
	return nil
}

// awaitNow makes the run that message $1 of project $2 invokes await a time that has passed; see entities/await. It
// locks the run before the message, as appends do.
const awaitNow = `
	UPDATE runs SET await = jsonb_build_object('seq', last_seq, 'at', updated_at)
	WHERE id = (SELECT run_id FROM messages WHERE ` + ofID + ` AND work = 'run') AND completed_at IS NULL`

// auditDetail returns the detail that an audit entry stores about a message.
func auditDetail(e Entry) map[string]any {
	return map[string]any{"topic": e.Topic, "deploymentId": e.DeploymentID, "runId": e.RunID, "state": e.State}
}

// Held returns which of the project's runs are held, and why.
func (q *Queue) Held(
	ctx context.Context, project entities.Project, runs []entities.RunID,
) (map[entities.RunID]message.Held, error) {
	held := map[entities.RunID]message.Held{}
	if len(runs) == 0 {
		return held, nil
	}
	rows, err := pg.NewPool(q.pool).Query(ctx, `
		SELECT run_id, held, coalesce(first_failed_at, created_at), greatest(1, delivery_count - cut_off) FROM messages
		WHERE run_id = ANY ($1) AND work = 'run' AND subject = '' AND project IS NOT DISTINCT FROM $2`, runs, project)
	if err != nil {
		return nil, wrap("read held runs", err)
	}
	var id entities.RunID
	var why *message.Held
	var since time.Time
	var attempts int
	_, err = pgx.ForEachRow(rows, []any{&id, &why, &since, &attempts}, func() error {
		if why != nil {
			why.Since, why.Attempts = since, attempts
			held[id] = *why
		}
		why = nil
		return nil
	})
	return held, wrap("read held runs", err)
}

// maxHeldRuns limits the runs that [Queue.HeldRuns] returns.
const maxHeldRuns = 200

// HeldRuns returns up to 200 runs of the project that are held, each with how many calls have failed.
func (q *Queue) HeldRuns(ctx context.Context, project entities.Project) (map[entities.RunID]int, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx, `
		SELECT run_id, delivery_count FROM messages WHERE project = $1 AND held IS NOT NULL AND work = 'run'
		ORDER BY project, id LIMIT $2`, project, maxHeldRuns)
	if err != nil {
		return nil, wrap("list held runs", err)
	}
	held := map[entities.RunID]int{}
	var id entities.RunID
	var calls int
	_, err = pgx.ForEachRow(rows, []any{&id, &calls}, func() error {
		held[id] = calls
		return nil
	})
	return held, wrap("list held runs", err)
}

// heldCodes are the codes by which [Gauges] counts held runs. They are those of SDKs: other codes could be anything.
var heldCodes = []string{message.CodeDiverged, "panic", "encode"}

// heldSQL counts the runs that are held, up to the limit $2, by the codes $1. The ORDER BY makes Postgres use the
// partial index.
const heldSQL = `
	SELECT code, count(*) FROM (
		SELECT CASE WHEN held->>'code' = ANY ($1) THEN held->>'code' ELSE 'other' END AS code
		FROM messages WHERE held IS NOT NULL ORDER BY project, id LIMIT $2) AS h GROUP BY code`

// countHeld counts the runs that are held, by their code, or "other".
func (q *Queue) countHeld(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{"other": 0}
	for _, code := range heldCodes {
		counts[code] = 0
	}
	rows, err := pg.NewPool(q.pool).Query(ctx, heldSQL, heldCodes, gaugeLimit)
	if err != nil {
		return nil, err
	}
	var code string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&code, &n}, func() error {
		counts[code] = n
		return nil
	})
	return counts, err
}

// gaugeLimit bounds the counts of [Queue.Gauges]: a gauge at the limit means that many or more.
const gaugeLimit = 10_000

// Gauges are counts over all projects, each up to 10,000.
type Gauges struct {
	// StrandedRuns counts the runs that the sweeper found unable to make progress (I5).
	StrandedRuns int64
	// WaitingMessages counts messages that are due, delayed, or in backoff, LeasedMessages those being delivered or
	// processed.
	WaitingMessages, LeasedMessages int64
	// ParkedMessages counts messages that wait for an operator to retry or discard them.
	ParkedMessages int64
	// OldestDue is how long the oldest due message has waited for its delivery.
	OldestDue time.Duration
	// OpenRuns counts the runs that have not ended, by status; the limit applies to their sum.
	OpenRuns map[entities.RunStatus]int64
	// HeldRuns counts the runs whose function refuses to go on, by the code that it gives; codes that are not known are
	// counted as "other". The limit applies to their sum.
	HeldRuns map[string]int64
}

// Gauges reads the gauges. Its cost is bounded: no part reads more than 10,000 entries of an index, or 20,000 where
// leased messages are mixed with waiting ones.
func (q *Queue) Gauges(ctx context.Context) (Gauges, error) {
	var g Gauges
	var oldest time.Duration
	err := pg.NewPool(q.pool).QueryRow(ctx, gaugesSQL, gaugeLimit).
		Scan(&g.StrandedRuns, &g.WaitingMessages, &g.LeasedMessages, &g.ParkedMessages, &oldest)
	if err != nil {
		return Gauges{}, wrap("read gauges", err)
	}
	g.WaitingMessages, g.OldestDue = min(g.WaitingMessages, gaugeLimit), oldest
	if g.HeldRuns, err = q.countHeld(ctx); err != nil {
		return Gauges{}, wrap("read gauges", err)
	}
	g.OpenRuns, err = store.CountOpenRuns(ctx, pg.NewPool(q.pool), gaugeLimit)
	return g, wrap("read gauges", err)
}

// gaugesSQL reads the gauges up to the limit $1. The ORDER BY of each part makes Postgres use a partial index.
const gaugesSQL = `
	SELECT (SELECT count(*) FROM (
			SELECT FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $1) AS s),
		(SELECT count(*) FILTER (WHERE lease = '') FROM (
			SELECT lease FROM messages WHERE parked_at IS NULL ORDER BY due_at DESC LIMIT 2 * $1) AS w),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE lease > '' ORDER BY project, id LIMIT $1) AS l),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE parked_at IS NOT NULL ORDER BY project, id LIMIT $1) AS p),
		greatest('0',
			(SELECT clock_timestamp() - due_at FROM messages WHERE parked_at IS NULL ORDER BY due_at LIMIT 1),
			(SELECT clock_timestamp() - scheduled_at FROM (` + tickets.OldestSince + `) AS oldest))`
