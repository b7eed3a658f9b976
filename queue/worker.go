package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// hardStopTimeout is how long the dispatcher waits for deliveries after it has cancelled them.
const hardStopTimeout = 10 * time.Second

// WorkerOptions configures a [Worker].
type WorkerOptions struct {
	// Deliveries is how many deliveries may be in progress at once; at most 10,000.
	Deliveries int
	// MaxDeliveries is the number of deliveries without an acknowledgement after which a message is parked. Clients end
	// the run themselves after 48 (protocol §5.4), so a higher number leaves that to them.
	MaxDeliveries int
	// FailureWindow is how long ago the first failure must be for a message to be parked.
	FailureWindow time.Duration
	// BodyMemory limits the total size of the bodies in memory, in bytes. A larger body is delivered alone.
	BodyMemory int64
	// Grace is how long deliveries in progress may continue when the worker stops.
	Grace time.Duration
	// Allowed are the addresses that functions may have besides public ones.
	Allowed egress.Allowed
	// Signer signs calls; nil leaves them unsigned.
	Signer *Signer
	// Handlers do the server's own work, by kind.
	Handlers map[message.Work]Handler
	// World serves apps with a client of their own; nil delivers all messages in the form that all clients read.
	World World
	// Retention, if not nil, deletes expired runs every minute.
	Retention *upkeep.Retention
	// Stats, if not nil, counts new events after each pass of the sweeper.
	Stats *stats.Follower
	// Observer, if not nil, observes the deliveries.
	Observer Observer
	// Program is what the process tells the others about itself.
	Program cluster.Program
	Logger  *slog.Logger
}

// Worker delivers messages until it is stopped. River fetches their tickets; the dispatcher delivers messages that this
// process accepts without tickets.
type Worker struct {
	*deliverer

	fetcher    *tickets.Fetcher
	dispatcher *dispatcher
	loop       *loop // while it runs
}

// NewWorker returns a worker for the queue, whose tables are in the given schema.
func (q *Queue) NewWorker(schema string, o WorkerOptions) (*Worker, error) {
	d := newDeliverer(q, o)
	// Half of the slots are for tickets, so that a stream of new messages cannot starve the old ones.
	forTickets := o.Deliveries - o.Deliveries/2
	d.slots = share.NewPool(int64(forTickets))
	d.sweeper.AfterPass = func(ctx context.Context) {
		d.countEvents(ctx)
		d.tellDeadlocks(ctx)
	}
	w := &Worker{deliverer: d, dispatcher: newDispatcher(d, o.Deliveries/2)}
	var err error
	w.fetcher, err = tickets.NewFetcher(q.pool, q.sessions, schema, d.heartbeat.ID, forTickets, d.redeem, o.Logger)
	return w, err
}

// Start starts delivering. The worker runs until [Worker.Stop], even if the context ends.
func (w *Worker) Start(ctx context.Context) error {
	l, err := startLoop(ctx, w.deliverer)
	if err != nil {
		return err
	}
	if err := w.fetcher.Start(l.calls); err != nil {
		l.end(err)
		return err
	}
	w.loop = l
	if h := w.queue.hosted; h != nil {
		l.task("host", func() { w.dispatcher.takeGivenBack(l.running, h.host()) })
	}
	l.task("issue", func() { l.run(w.poll) })
	l.task("sweep", func() { l.every(w.sweeper.Interval, w.sweep) })
	l.task("expire", func() { l.every(keysPoll, w.deleteExpired) })
	l.task("retention", func() {
		w.retain(l.running)
		l.every(retentionPoll, w.retain)
	})
	w.queue.Attach(w)
	return nil
}

// Attach makes the worker deliver the messages that the queue accepts in this process. Attach(nil) ends that: all
// messages get tickets.
func (q *Queue) Attach(w *Worker) {
	if w == nil {
		q.local.Store(nil)
		return
	}
	q.local.Store(w.dispatcher)
}

// ProcessID returns the ID under which the worker's process is registered.
func (w *Worker) ProcessID() string { return w.heartbeat.ID }

// poll issues tickets for due messages, which River then fetches.
func (w *Worker) poll(ctx context.Context) time.Duration {
	next, err := w.issueDue(ctx)
	if err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "issue tickets", "error", err)
		return duePoll
	}
	return next
}

// Stop starts no more deliveries and waits for those in progress until the grace period or the context ends; work that
// stores its progress ends at once. Then it cancels the calls but leaves the functions their leases, so that a function
// that is still working can finish.
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
