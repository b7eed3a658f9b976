package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Delivery is a message under way, leased to the bearer of the handle. A [Handler] does its work through the
// methods: they end the lease, extend it, or give it back, each by itself or as part of a transaction.
type Delivery struct {
	ID            string
	Project       entities.Project
	Topic         string
	DeploymentID  string
	RunID         entities.RunID
	Work          entities.Work
	Subject       string
	ContentType   string
	Body          []byte
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DueAt         time.Time
	Lease         string
	DeliveryCount int
	// Unreached is how often in a row the function could not be reached so far.
	Unreached int
	// ClaimedAt is when the delivery began.
	ClaimedAt time.Time
	// URL is the base URL of the deployment; empty when it is not registered.
	URL string
	// SpecVersion is the protocol version of the run that it is about; 0 when that is not known.
	SpecVersion int

	// Begun is set when the log has it that the work began, with the transaction that leased it or later.
	Begun *eventlog.InlineStart `db:"-"`
	by    *deliverer
}

// HasBegun reports whether the log has it that the work began.
func (d Delivery) HasBegun() bool { return d.Begun != nil && d.Begun.Run != nil }

// InlineStart has the work begin with the transaction that leases it, if the log records that. The log then also reads
// so many events.
func (d *Delivery) InlineStart() *eventlog.InlineStart {
	d.Begun = &eventlog.InlineStart{
		RunID: d.RunID, Work: d.Work, Subject: d.Subject, At: d.ClaimedAt, Events: InlineEvents,
	}
	return d.Begun
}

// InlineEvents is how much of a run's log a call to its function brings along.
const InlineEvents = 1000

// Logger is where to log what happens to the delivery.
func (d Delivery) Logger() *slog.Logger { return d.by.logger }

// LeaseTime is how long a lease lasts that is not extended.
func (d Delivery) LeaseTime() time.Duration { return d.by.lease }

// Call sends a signed request to the deployment's function.
func (d Delivery) Call(req *http.Request, body []byte) (*http.Response, error) {
	d.by.options.Observer.Call(req.Context(), req.Header)
	if err := d.by.options.Signer.sign(req, d.Project, body); err != nil {
		return nil, err
	}
	return d.by.http.Do(req)
}

// ReserveMemory takes memory for so many bytes, which free gives back. If there is none for long, the delivery fails,
// so that others have their turn. The lease begins anew if it had to wait: the function has its whole time all the
// same.
func (d Delivery) ReserveMemory(ctx context.Context, size int64) (free func(), err error) {
	if free, ok := d.by.memory.try(size); ok {
		return free, nil
	}
	waiting, cancel := context.WithTimeout(ctx, d.by.lease/2)
	defer cancel()
	free, err = d.by.memory.take(waiting, size)
	if err != nil && ctx.Err() == nil {
		const reason = "there was no memory for the log"
		return nil, &Failure{Reason: reason, Public: reason, After: firstBackoff}
	}
	if err != nil {
		return nil, err
	}
	if err := extendLease(ctx, d.by.queue.pool, d.Lease, d.by.lease); err != nil {
		free()
		return nil, err
	}
	return free, nil
}

// End ends the work for good. It may be gone: the end of a run deletes all its work.
func (d Delivery) End(ctx context.Context) error {
	_, err := d.by.queue.pool.Exec(ctx, endWork, d.Lease)
	return wrap("end work", err)
}

// EndIn ends the work with the batch.
func (d Delivery) EndIn(b *pgx.Batch) { b.Queue(endWork, d.Lease) }

// EndIf adds the end of the work to a conditional statement, which is carried out only while the lease lives, and under
// a further condition on the message.
func (d Delivery) EndIf(c *pg.Conditional, condition string) {
	d.RequireLease(c, condition)
	c.Add(pg.Write{SQL: endWork, Args: []any{d.Lease}})
}

// ExtendIn makes the lease last, with the batch, for a call of the given length and until its result is recorded.
func (d Delivery) ExtendIn(b *pgx.Batch, call time.Duration) {
	b.Queue(extendSQL, d.Lease, call+persistTimeout)
}

// Persist does what must be done also when the server is shutting down, or the database is away for a while: it tries
// again for a minute.
func (Delivery) Persist(ctx context.Context, do func(context.Context) error) error {
	return persist(ctx, do)
}

// NackIn gives the message back after a failure, with the batch.
func (d Delivery) NackIn(b *pgx.Batch, f Failure) { b.Queue(nackSQL, f.nackArgs(d.Lease)...) }

// Advance keeps how far the work has come in the message's body, for whichever process goes on with it, and begins the
// lease anew. It fails with [entities.ErrStale] when the lease is over.
func (d Delivery) Advance(ctx context.Context, place []byte) error {
	tag, err := d.by.queue.pool.Exec(ctx, `
		UPDATE messages SET body = $2, due_at = now() + $3
		WHERE `+OfLease+` AND due_at > clock_timestamp()`, d.Lease, place, d.by.lease)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: its lease is over", entities.ErrStale)
	}
	return wrap("keep the progress of work", err)
}

// Reserve offers to do the delivery's work once more in this process, right after a transaction that leases it again;
// see [Delivery.RestartIn].
func (q *Queue) Reserve() Reservation { return q.reserve(entities.Message{}, 0) }

// RestartIn ends the lease with the batch and leases the work again as reserved. Its failures are forgotten. The new
// delivery, which is then to be started by the reservation, is read into next.
func (d Delivery) RestartIn(b *pgx.Batch, r Reservation, next *Delivery) {
	b.Queue(`
		UPDATE messages m
		SET lease = $2, holder = $3, again = false, due_at = now() + $4, delivery_count = 1, unreached = 0,
			first_failed_at = NULL, last_error = ''
		WHERE `+OfLease+`
		RETURNING `+deliveryColumns+`, body`, d.Lease, r.handle, r.holder, r.lease,
	).Query(func(rows pgx.Rows) (err error) {
		*next, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Delivery])
		return wrap("restart work", err)
	})
}

// LeaseGuard tells whether work is still done by the delivery that locked it.
type LeaseGuard struct {
	alive bool
	// Again is set when there was news since the work began.
	Again bool
	// At is the time of the database.
	At time.Time
}

// ofWork is the condition for work $4 about run $3 of project $2 that is under the lease $1; see [ofMessage].
const ofWork = OfLease + ` AND (project, run_id, work) IS NOT DISTINCT FROM ($2, $3, $4)`

// Guard queues a look at the lease, which keeps it as it is until the transaction ends.
func (d Delivery) Guard(b *pgx.Batch) *LeaseGuard {
	var g LeaseGuard
	b.Queue(`
		SELECT due_at > clock_timestamp(), again, now() FROM messages WHERE `+ofWork+` FOR UPDATE`,
		d.Lease, d.Project, d.RunID, d.Work,
	).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&g.alive, &g.Again, &g.At)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return wrap("check lease", err)
	})
	return &g
}

// Check fails with [entities.ErrStale] unless the lease lives.
func (g *LeaseGuard) Check() error {
	if !g.alive {
		return fmt.Errorf("%w: it is over, or another one has taken its place", entities.ErrStale)
	}
	return nil
}

// RequireLease makes a conditional statement depend on the living lease, and on a further condition on the message.
func (d Delivery) RequireLease(c *pg.Conditional, condition string) {
	c.Require(`EXISTS (SELECT FROM messages WHERE `+ofWork+` AND due_at > clock_timestamp()`+condition+` FOR UPDATE)`,
		d.Lease, d.Project, d.RunID, d.Work)
}

// Handler does one kind of work that was claimed. It ends the work's lease, which a nil error does not; work that fails
// is tried again, as a [Failure] says or after a backoff.
type Handler func(context.Context, Delivery) error

// errUnknownWork: another version of the server left it.
const errUnknownWork = PublicError("the work is unknown to this version of the server")

// Perform has a piece of work done that was claimed, and puts off what cannot be done.
func (w *deliverer) Perform(ctx context.Context, d Delivery) (Delivered, error) {
	do, ok := w.options.Handlers[d.Work]
	if !ok {
		return w.putOff(ctx, d, fmt.Errorf("%w: %q", errUnknownWork, d.Work))
	}
	d = w.Bind(d)
	err := do(ctx, d)
	switch {
	case err == nil:
		return Delivered{Outcome: OutcomeDone}, nil
	case errors.Is(err, entities.ErrStale):
		// Another process does it now, or will as soon as one sees that the lease is over.
		return Delivered{OutcomeDropped, redact(err)}, nil
	case IsOver(err):
		return Delivered{OutcomeDropped, redact(err)}, persist(ctx, d.End)
	case Interrupted(ctx, err): // others go on at once
		return Delivered{Outcome: OutcomeStopped}, w.nack(ctx, d.Lease, Failure{Reason: "the server was stopped"})
	default:
		return w.putOff(ctx, d, err)
	}
}

// Bind makes a delivery one of this process, whose memory and connections it then uses.
func (w *deliverer) Bind(d Delivery) Delivery {
	d.by = w
	return d
}

// putOff has the work tried again after a while.
func (w *deliverer) putOff(ctx context.Context, d Delivery, err error) (Delivered, error) {
	f := d.Failure(err)
	w.logger.InfoContext(ctx, "work failed", "message", d.ID, "run", d.RunID, "work", d.Work, "subject", d.Subject,
		"delivery", d.DeliveryCount, "error", f.Public)
	return f.delivered(), w.nack(ctx, d.Lease, f)
}

// IsOver reports whether an error means that there is nothing left to do: the run has ended or is gone, or another
// delivery does it.
func IsOver(err error) bool {
	return errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound) ||
		errors.Is(err, entities.ErrStale)
}

// Interrupted reports whether work failed because the server stops. Work that is broken off by the end of a drain is
// not interrupted but too long.
func Interrupted(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, errDrainOver)
}
