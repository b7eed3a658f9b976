package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
)

// ending is how the work of an invocation ends that was answered: the run is invoked again when there is news, or at
// the end of its next wait. If there is news already, the next invocation begins with the answer.
type ending struct {
	queue.Delivery

	here  queue.Reservation // for the next invocation to begin in this process
	guard *queue.LeaseGuard
	// goesOn says that the run does not end with the answer, and news that it is to be invoked at once.
	goesOn, news bool
	// next is the next invocation, if it begins with the answer.
	next *queue.Delivery
	// later says that there will be one.
	later bool
}

// check begins the end, anew if the transaction is tried again.
func (e *ending) check(b *pgx.Batch) func() error {
	*e = ending{Delivery: e.Delivery, here: e.here, guard: e.Guard(b)}
	return e.guard.Check
}

func (e *ending) begin(b *pgx.Batch, news bool) func() *eventlog.Beginning {
	e.goesOn, e.news = true, news || e.guard.Again
	if !e.news || !e.here.Made() {
		return nil
	}
	e.next = &queue.Delivery{}
	e.RestartIn(b, e.here, e.next)
	return e.next.InlineStart
}

func (e *ending) settle(_ context.Context, _ pgx.Tx, last *pgx.Batch) error {
	if e.goesOn && e.next == nil { // else its work is dropped, or goes on
		suspend(last, e.Lease, e.news, &e.later)
	}
	return nil
}

// believe ends the work of a run that has ended, which goes with it; or that has something to wait for besides time,
// and of which there is no news.
func (e *ending) believe(c *entities.Chain, o eventlog.Outlook) bool {
	switch {
	case o.Ended:
		e.RequireLease(c, "")
	case o.Open:
		e.EndIf(c, ` AND NOT again`)
		entities.RequireNoWait(c, e.RunID)
	default:
		return false
	}
	return true
}

// ended makes the next invocation once the transaction is over.
func (e *ending) ended(q *queue.Queue, failed error) {
	if e.next != nil {
		e.here.Start(*e.next, failed)
	}
	if e.later {
		q.WakeTimer(failed)
	}
}

// suspend queues to end the lease on a run's work after it was done. The work is to be done again at once if there is
// news, or when the next wait is over, which is told to later; its failures are forgotten. If there is no wait, but a
// step or a hook is open, what becomes of that will be new work. Else the run would wait for nothing: the time that
// there is not is refused by its column, and the batch fails with [ErrNothingLeft].
func suspend(b *pgx.Batch, handle string, news bool, later *bool) {
	b.Queue(`
		WITH turn AS (
			SELECT id, CASE WHEN $2 THEN now() ELSE (
					SELECT min(resume_at) FROM waits w WHERE w.run_id = m.run_id AND w.status = 'waiting') END AS next,
				coalesce((SELECT true FROM steps s WHERE s.run_id = m.run_id AND s.completed_at IS NULL LIMIT 1),
					(SELECT true FROM hooks h WHERE h.run_id = m.run_id LIMIT 1), false) AS open
			FROM messages m WHERE `+queue.OfLease+`
		), done AS (
			DELETE FROM messages WHERE id = (SELECT id FROM turn WHERE next IS NULL AND open)
		)
		UPDATE messages m
		SET lease = '', holder = '', again = false, due_at = turn.next, delivery_count = 0, unreached = 0,
			first_failed_at = NULL, last_error = ''
		FROM turn WHERE `+queue.OfLease+` AND (next IS NOT NULL OR NOT open)
		RETURNING true`, handle, news,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(later)
		var pg *pgconn.PgError
		const missing = "23502"
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case errors.As(err, &pg) && pg.Code == missing && pg.ColumnName == "due_at":
			return ErrNothingLeft
		case err != nil:
			return fmt.Errorf("suspend run: %w", err)
		default:
			return nil
		}
	})
}
