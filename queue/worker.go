package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// hardStopTimeout is how long breaking off the deliveries may take.
const hardStopTimeout = 10 * time.Second

// WorkerOptions configures a [Worker].
type WorkerOptions struct {
	// Deliveries is how many deliveries may be under way at once; at most 10,000.
	Deliveries int
	// MaxDeliveries is the number of deliveries without an acknowledgement after which a message is parked. Clients give
	// up by themselves after 48 (protocol §5.4); a higher number lets them.
	MaxDeliveries int
	// FailureWindow is how long ago the first failure must be for a message to be parked.
	FailureWindow time.Duration
	// BodyMemory limits the total bytes of the bodies under way. A larger body is delivered alone.
	BodyMemory int64
	// Grace is how long deliveries under way may continue when the worker stops.
	Grace time.Duration
	// Allowed are the addresses, besides public ones, at which functions may be called.
	Allowed egress.Allowed
	// Signer signs calls; nil leaves them unsigned.
	Signer *Signer
	// Handlers do the server's own work, by its kind.
	Handlers map[entities.Work]Handler
	// Retention, if not nil, deletes expired runs every minute.
	Retention *upkeep.Retention
	// Observer, if not nil, watches the deliveries.
	Observer Observer
	Logger   *slog.Logger
}

// Worker delivers messages until it is stopped. River fetches their tickets; what this process accepts itself, its
// dispatcher delivers without one.
type Worker struct {
	*deliverer

	fetcher    *tickets.Fetcher
	dispatcher *dispatcher
	loop       *loop // while it runs
}

// NewWorker makes a worker for the queue, whose tables are in the given schema.
func NewWorker(q *Queue, schema string, o WorkerOptions) (*Worker, error) {
	d := newDeliverer(q, o)
	// Half of the places are for tickets: old messages must find some also when new ones keep coming.
	w := &Worker{deliverer: d, dispatcher: newDispatcher(d, o.Deliveries/2)}
	var err error
	w.fetcher, err = tickets.NewFetcher(q.pool, schema, d.heartbeat.ID, o.Deliveries-o.Deliveries/2, d.use, o.Logger)
	return w, err
}

// use redeems a ticket. A process that is on no record keeps it until it is again.
func (w *deliverer) use(ctx context.Context, t tickets.Ticket, since time.Time) error {
	err := w.redeem(ctx, t, since)
	if errors.Is(err, errNotOnRecord) {
		return tickets.Later(cluster.BeatInterval)
	}
	return err
}

// Start begins to deliver. The context does not end it: [Worker.Stop] does.
func (w *Worker) Start(ctx context.Context) error {
	l, err := w.signOn(ctx)
	if err != nil {
		return err
	}
	if err := w.fetcher.Start(l.calls); err != nil {
		l.end(err)
		return err
	}
	w.loop = l
	l.tasks.Go(func() { l.run(nil, w.look) }) // River hears of tickets by itself
	l.tasks.Go(func() { l.every(w.sweeper.Interval, w.sweep) })
	l.tasks.Go(func() { l.every(keysPoll, w.deleteExpired) })
	l.tasks.Go(func() {
		w.retain(l.running)
		l.every(retentionPoll, w.retain)
	})
	w.queue.Attach(w)
	return nil
}

// Attach has the worker deliver what the queue accepts in this process; nil ends that.
func (q *Queue) Attach(w *Worker) {
	if w == nil {
		q.local.Store(nil)
		return
	}
	q.local.Store(w.dispatcher)
}

// ProcessID is the ID under which the worker's process is on record.
func (w *Worker) ProcessID() string { return w.heartbeat.ID }

// look issues the tickets that are due, for River to fetch.
func (w *Worker) look(ctx context.Context) time.Duration {
	next, err := w.issueDue(ctx)
	if err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "issue tickets", "error", err)
		return duePoll
	}
	return next
}

// Stop takes on no more deliveries, waits for those under way until the grace period or the context is
// over, and then breaks the calls off and leaves the leases with the functions.
func (w *Worker) Stop(ctx context.Context) error {
	w.queue.local.CompareAndSwap(w.dispatcher, nil)
	w.dispatcher.close()
	w.loop.stopTasks()
	w.serializer.close()
	graceful, cancel := context.WithTimeout(ctx, w.options.Grace)
	defer cancel()
	err := w.fetcher.Stop(graceful)
	w.dispatcher.stop(graceful)
	w.loop.end(context.Canceled)
	return err
}
