package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// invocationEnd ends an invocation that was answered. The run is invoked again after new events, or at the end of its
// next wait. If there are new events already, the answer's transaction starts the next invocation.
type invocationEnd struct {
	queue.Delivery

	// reservation is the slot in this process for the next invocation.
	reservation queue.Reservation
	// known is the position up to which the function knows the log.
	known int64
	// awaiting is what the run awaits, if the answer says so.
	awaiting *eventlog.Awaiting
	// by is the copy of the call that has answered; nil if it has not said what it knows.
	by    *queue.Copy
	guard *queue.LeaseGuard
	// newEvents is set if the run must be invoked again at once.
	newEvents bool
	// next is the next invocation, if the answer's transaction starts it.
	next *queue.Delivery
	// timerSet is set if the run's work is due at a later time.
	timerSet bool
	// shortWaits takes runs that wait for a short time; short is the wait of this run, if it does.
	shortWaits *shortWaits
	short      shortWait
}

// Lock checks the lease. It resets the state first, since the transaction may be retried.
func (e *invocationEnd) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	*e = invocationEnd{
		Delivery: e.Delivery, reservation: e.reservation, known: e.known, awaiting: e.awaiting, by: e.by, guard: e.Guard(b),
		shortWaits: e.shortWaits,
	}
	return func([]eventlog.Request) error { return cmp.Or(e.guard.Check(), e.guard.CheckCopy(e.by)) }
}

// StartNext starts the next invocation in the answer's transaction, if there are new events and this process has a
// slot. If the answer says what the run awaits, the log knows whether the events that came during the invocation
// count.
func (e *invocationEnd) StartNext(b *pgx.Batch, newEvents bool) func() *eventlog.InlineStart {
	e.newEvents = newEvents || e.guard.Again && e.awaiting == nil
	if !e.newEvents || !e.reservation.Made() {
		return nil
	}
	e.next = &queue.Delivery{}
	e.RestartIn(b, e.reservation, e.next)
	return e.next.InlineStart
}

// AddTo ends the lease, and notes what the function knows if the run goes on. The work of a run that has ended is
// deleted with the run. The work of a run without new events, which waits for something other than time, is deleted
// here. In all other cases, and if the lock on the run is held anyway, suspend decides.
func (e *invocationEnd) AddTo(s *pg.Conditional, o eventlog.Outlook) {
	if o.Ended {
		e.RequireLease(s, "", e.by)
		return
	}
	waitsForEvent := o.Open && !o.Next && (o.Await == nil || o.Await.At == nil)
	switch at := byTime(o); {
	case e.next != nil: // which has the lease
	case e.guard == nil && at != nil:
		e.suspendUntil(s, *at, o)
	case e.guard != nil || !waitsForEvent: // new events may be none that the run awaits: only the lock tells
		s.UnderLock(e.suspend)
	case o.Await == nil: // a step or hook is open, and its event enqueues new work
		e.EndIf(s, ` AND NOT redeliver`, e.by)
		store.RequireNoWait(s, e.RunID)
	default:
		e.EndIf(s, ` AND NOT redeliver`, e.by)
	}
	e.NoteKnown(s, e.known)
}

// afterCommit calls the function for the next invocation, if it was started, and wakes the timer. If the
// transaction failed, it releases the next invocation's lease instead, since the commit may have happened all the same.
func (e *invocationEnd) afterCommit(q *queue.Queue, err error) {
	if e.next != nil {
		e.next.Known = e.known // the start was read before the note was written
		e.reservation.Start(*e.next, err)
	}
	e.shortWaits.end(e.Delivery)
	if e.timerSet && (err != nil || e.short.grace == 0 || !e.shortWaits.begin(e.Delivery, e.short)) {
		q.WakeTimer(err)
	}
}

// byTime returns when the run is to be invoked because of time, unless an event of the append calls for an invocation;
// nil if only the lock tells.
func byTime(o eventlog.Outlook) *time.Time {
	switch {
	case o.Wakes:
		return nil
	case o.Await != nil:
		return o.Await.At
	default:
		return o.Until
	}
}

// suspendUntil is suspend as part of a conditional statement, for a run that is invoked at a time, or when a wait ends
// that the append does not know. If that is soon and this process has a slot, it wakes the run itself: the message is
// due a little later, in case that the process dies.
func (e *invocationEnd) suspendUntil(s *pg.Conditional, at time.Time, o eventlog.Outlook) {
	e.RequireLease(s, ` AND NOT redeliver`, e.by)
	e.timerSet, e.short = true, shortWait{}
	if e.reservation.Made() && o.Until != nil && o.Until.Equal(at) {
		e.short.grace = e.shortWaits.grace(at)
	}
	others := `SELECT resume_at FROM waits w
		WHERE w.run_id = m.run_id AND w.status = 'waiting' AND $4::boolean AND w.id <> ALL ($5::text[])`
	s.Add(pg.Write{
		SQL: `
		UPDATE messages m
		SET lease = '', holder = '', redeliver = false, delivery_count = 0, unreached_count = 0, disconnect_count = 0,
			first_failed_at = NULL, last_error = '', blocked = NULL,
			due_at = $3::interval + least($2::timestamptz, (SELECT min(resume_at) FROM (` + others + `) AS o))
		WHERE ` + queue.OfLease,
		Args:      []any{e.Lease, at, e.short.grace, o.Await == nil, o.Over},
		Returning: `due_at, due_at - clock_timestamp() AS wait`,
		Into:      []any{&e.short.due, &e.short.wait},
	})
}

// suspend ends the lease on a run's work after an invocation. If there are new events, the work is due at once; else at
// the end of the run's next wait, or when time alone makes hold what it awaits, and timerSet reports that. Its failures
// are forgotten.
//
// A run without a wait, but with an open step or hook, needs no work: the events of those enqueue new work. A run that
// has neither would wait for nothing. Its missing due time then violates the column's constraint, and the batch fails
// with [ErrNothingLeft]. For a run that awaits something, the same holds of what it awaits, and of its hooks.
func (e *invocationEnd) suspend(b *pgx.Batch) {
	var at *time.Time
	var awaits, steps bool
	if e.awaiting != nil && e.awaiting.Left != nil {
		awaits, at, steps = true, e.awaiting.Left.At, e.awaiting.Left.HasSteps()
	}
	b.Queue(`
		WITH invocation AS (
			SELECT id, CASE WHEN $2 THEN now() WHEN $3 THEN $4::timestamptz ELSE (
					SELECT min(resume_at) FROM waits w WHERE w.run_id = m.run_id AND w.status = 'waiting') END AS next,
				CASE WHEN $3 THEN $5 ELSE
					coalesce((SELECT true FROM steps s WHERE s.run_id = m.run_id AND s.completed_at IS NULL LIMIT 1), false) END
					OR coalesce((SELECT true FROM hooks h WHERE h.run_id = m.run_id LIMIT 1), false) AS open
			FROM messages m WHERE `+queue.OfLease+`
		), done AS (
			DELETE FROM messages WHERE id = (SELECT id FROM invocation WHERE next IS NULL AND open)
		)
		UPDATE messages m
		SET lease = '', holder = '', redeliver = false, due_at = invocation.next, delivery_count = 0,
			unreached_count = 0, disconnect_count = 0,
			first_failed_at = NULL, last_error = '', blocked = NULL
		FROM invocation WHERE `+queue.OfLease+` AND (next IS NOT NULL OR NOT open)
		RETURNING true`, e.Lease, e.newEvents, awaits, at, steps,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&e.timerSet)
		var pgErr *pgconn.PgError
		const notNullViolation = "23502"
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case errors.As(err, &pgErr) && pgErr.Code == notNullViolation && pgErr.ColumnName == "due_at":
			return ErrNothingLeft
		case err != nil:
			return fmt.Errorf("suspend run: %w", err)
		default:
			return nil
		}
	})
}
