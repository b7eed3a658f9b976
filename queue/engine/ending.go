package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
)

// invocationEnd is the end of an invocation that was answered: the run is invoked again on new events, or at the end of its
// next wait. If there are new events already, the next invocation begins with the answer's transaction.
type invocationEnd struct {
	queue.Delivery

	reservation  queue.Reservation // for the next invocation to begin in this process
	guard *queue.LeaseGuard
	// runOpen is set if the run does not end with the answer, newEvents if it is to be invoked again at once.
	runOpen, newEvents bool
	// next is the next invocation, if it begins with the answer's transaction.
	next *queue.Delivery
	// timerSet is set if the next invocation has a due time.
	timerSet bool
}

// check starts over, for the transaction may be tried again, and checks the lease.
func (e *invocationEnd) check(b *pgx.Batch) func() error {
	*e = invocationEnd{Delivery: e.Delivery, reservation: e.reservation, guard: e.Guard(b)}
	return e.guard.Check
}

func (e *invocationEnd) startNext(b *pgx.Batch, news bool) func() *eventlog.InlineStart {
	e.runOpen, e.newEvents = true, news || e.guard.Again
	if !e.newEvents || !e.reservation.Made() {
		return nil
	}
	e.next = &queue.Delivery{}
	e.RestartIn(b, e.reservation, e.next)
	return e.next.InlineStart
}

func (e *invocationEnd) release(_ context.Context, _ pgx.Tx, last *pgx.Batch) error {
	if e.runOpen && e.next == nil { // else the work is deleted with the run, or leased again
		suspend(last, e.Lease, e.newEvents, &e.timerSet)
	}
	return nil
}

// tryOptimistic is the end in an optimistic append. The work of a run that has ended is deleted with it; that of a run
// without new events, which waits for something other than time, is deleted here. Other cases need the locked append.
func (e *invocationEnd) tryOptimistic(c *pg.Conditional, o eventlog.Outlook) bool {
	switch {
	case o.Ended:
		e.RequireLease(c, "")
	case o.Open:
		e.EndIf(c, ` AND NOT again`)
		store.RequireNoWait(c, e.RunID)
	default:
		return false
	}
	return true
}

// afterCommit starts the next invocation once the transaction is over.
func (e *invocationEnd) afterCommit(q *queue.Queue, failed error) {
	if e.next != nil {
		e.reservation.Start(*e.next, failed)
	}
	if e.timerSet {
		q.WakeTimer(failed)
	}
}

// suspend queues the end of the lease on a run's work after an invocation. The work is due at once if there is news, or
// at the end of the run's next wait, which later then reports; its failures are forgotten. Without a wait, but with an
// open step or hook, the work is deleted: whatever happens to those enqueues new work. Else the run would wait for
// nothing: the missing due time violates its column's constraint, and the batch fails with [ErrNothingLeft].
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
