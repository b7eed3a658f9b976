package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// ending is how the work of an invocation ends that was answered: the run is invoked again when there is news, or at
// the end of its next wait. If there is news already, the next invocation begins with the answer.
type ending struct {
	delivery

	once reservation
	held *held
	// goesOn says that the run does not end with the answer, and news that it is to be invoked at once.
	goesOn, news bool
	// next is the next invocation, if it begins with the answer.
	next *delivery
	// later says that there will be one.
	later bool
}

// check begins the end, anew if the transaction is tried again.
func (e *ending) check(b *pgx.Batch) func() error {
	*e = ending{delivery: e.delivery, once: e.once, held: holdWork(b, e.delivery)}
	return e.held.verdict
}

func (e *ending) begin(b *pgx.Batch, news bool) func() *eventlog.Beginning {
	e.goesOn, e.news = true, news || e.held.again
	if !e.news || !e.once.made() {
		return nil
	}
	e.next = &delivery{}
	turnAgain(b, e.Lease, e.once, e.next)
	return e.next.inlineStart
}

func (e *ending) settle(_ context.Context, _ pgx.Tx, last *pgx.Batch) error {
	if e.goesOn && e.next == nil { // else its work is dropped, or goes on
		endTurn(last, e.Lease, e.news, &e.later)
	}
	return nil
}

// believe ends the work of a run that has ended, which goes with it; or that has something to wait for besides time,
// and of which there is no news.
func (e *ending) believe(c *entities.Chain, o eventlog.Outlook) bool {
	switch {
	case o.Ended:
		requireLease(c, e.delivery, "")
	case o.Open:
		endBelieved(c, e.delivery, ` AND NOT again`)
		entities.RequireNoWait(c, e.RunID)
	default:
		return false
	}
	return true
}

// endBelieved adds the end of work to a chain, which depends on that the lease lives, and on a further condition.
func endBelieved(c *entities.Chain, d delivery, condition string) {
	requireLease(c, d, condition)
	c.Add(entities.Write{SQL: endWork, Args: []any{d.Lease}})
}

// requireLease makes a chain depend on that the lease lives, and on a further condition.
func requireLease(c *entities.Chain, d delivery, condition string) {
	c.Require(`EXISTS (SELECT FROM messages WHERE `+ofWork+` AND due_at > clock_timestamp()`+condition+` FOR UPDATE)`,
		d.Lease, d.Project, d.RunID, d.Work)
}

// ended makes the next invocation once the transaction is over.
func (e *ending) ended(q *Queue, failed error) {
	if e.next != nil {
		e.once.start(*e.next, failed)
	}
	if e.later {
		q.wakeTimer(failed)
	}
}

// held is work under the lease that it is done by.
type held struct {
	alive bool
	// again says that there was news since the work was begun.
	again bool
	// at is the time of the database.
	at time.Time
}

// ofWork is the condition for work $4 about run $3 of project $2 that is under the lease $1, as [ofMessage] is.
const ofWork = ofLease + ` AND (project, run_id, work) IS NOT DISTINCT FROM ($2, $3, $4)`

// holdWork queues a look at the lease on that work, which keeps it as it is until the transaction ends.
func holdWork(b *pgx.Batch, d delivery) *held {
	var h held
	b.Queue(`
		SELECT due_at > clock_timestamp(), again, now() FROM messages WHERE `+ofWork+` FOR UPDATE`,
		d.Lease, d.Project, d.RunID, d.Work,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&h.alive, &h.again, &h.at)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return wrap("check lease", err)
	})
	return &h
}

// verdict fails with [entities.ErrStale] unless the lease lives.
func (h *held) verdict() error {
	if !h.alive {
		return fmt.Errorf("%w: it is over, or another one has taken its place", entities.ErrStale)
	}
	return nil
}

// inlineStart has the delivery begin with the transaction that leases it, if the log records that.
func (d *delivery) inlineStart() *eventlog.Beginning {
	d.begun = &eventlog.Beginning{RunID: d.RunID, Work: d.Work, Subject: d.Subject, At: d.ClaimedAt, Events: callEvents}
	return d.begun
}

// hasBegun reports whether the log has it that the delivery begins.
func (d delivery) hasBegun() bool { return d.begun != nil && d.begun.Run != nil }

// turnAgain queues to end a lease after the work was done, and to lease it as offered, to be done once more. Its
// failures are forgotten.
func turnAgain(b *pgx.Batch, handle string, o reservation, into *delivery) {
	b.Queue(`
		UPDATE messages m
		SET lease = $2, holder = $3, again = false, due_at = now() + $4, delivery_count = 1, unreached = 0,
			first_failed_at = NULL, last_error = ''
		WHERE `+ofLease+`
		RETURNING `+deliveryColumns+`, body`, handle, o.handle, o.holder, o.lease,
	).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[delivery])
		return wrap("do work once more", err)
	})
}

// endTurn queues to end the lease on a run's work after it was done. The work is to be done again at once if there is
// news, or when the next wait is over, which is told to later; its failures are forgotten. If there is no wait, but a
// step or a hook is open, what becomes of that will be new work. Else the run would wait for nothing: the time that
// there is not is refused by its column, and the batch fails with [ErrNothingLeft].
func endTurn(b *pgx.Batch, handle string, news bool, later *bool) {
	b.Queue(`
		WITH turn AS (
			SELECT id, CASE WHEN $2 THEN now() ELSE (
					SELECT min(resume_at) FROM waits w WHERE w.run_id = m.run_id AND w.status = 'waiting') END AS next,
				coalesce((SELECT true FROM steps s WHERE s.run_id = m.run_id AND s.completed_at IS NULL LIMIT 1),
					(SELECT true FROM hooks h WHERE h.run_id = m.run_id LIMIT 1), false) AS open
			FROM messages m WHERE `+ofLease+`
		), done AS (
			DELETE FROM messages WHERE id = (SELECT id FROM turn WHERE next IS NULL AND open)
		)
		UPDATE messages m
		SET lease = '', holder = '', again = false, due_at = turn.next, delivery_count = 0, unreached = 0,
			first_failed_at = NULL, last_error = ''
		FROM turn WHERE `+ofLease+` AND (next IS NOT NULL OR NOT open)
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
		default:
			return wrap("end a turn", err)
		}
	})
}
