package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

const (
	// River fetches at once when it is hinted, then at most this often; unhinted it looks each second.
	fetchCooldown = 5 * time.Millisecond
	fetchPoll     = time.Second
	// usedTicketRetention is how long River keeps used tickets, which nobody needs.
	usedTicketRetention = time.Minute
	// hardStopTimeout is how long breaking off the deliveries may take.
	hardStopTimeout = 10 * time.Second
)

// WorkerOptions configures a [Worker].
type WorkerOptions struct {
	// Deliveries is how many deliveries may be under way at once; at most 10,000.
	Deliveries int
	// MaxDeliveries is after how many deliveries without an acknowledgement a message is parked. Clients
	// give up by themselves after 48 (protocol §5.4); more gives them the chance.
	MaxDeliveries int
	// FailureWindow is how long ago the first failure must be for a message to be parked, however many
	// followed.
	FailureWindow time.Duration
	// BodyMemory is how many bytes the bodies of the deliveries under way may have together. A body that
	// is larger is delivered alone.
	BodyMemory int64
	// Grace is how long deliveries under way may go on when the worker stops.
	Grace time.Duration
	// Allowed are the addresses besides public ones where functions may be.
	Allowed egress.Allowed
	// Signer signs calls; without one they are not signed.
	Signer *Signer
	// Runs continues those that the server drives.
	Runs *Runs
	// Retention, if there is one, is looked after every minute.
	Retention *eventlog.Retention
	// Observer, if there is one, watches the deliveries.
	Observer Observer
	Logger   *slog.Logger
}

// Worker delivers messages until it is stopped. River fetches their tickets; what this process accepts itself, its
// dispatcher delivers without one.
type Worker struct {
	*deliverer

	river      *river.Client[pgx.Tx]
	dispatcher *dispatcher
	loop       *loop // while it runs
}

// NewWorker makes a worker for the queue, whose tables are in the given schema.
func NewWorker(q *Queue, schema string, o WorkerOptions) (*Worker, error) {
	d := newDeliverer(q, o)
	// Half of the places are for tickets: old messages must find some also when new ones keep coming.
	w := &Worker{deliverer: d, dispatcher: newDispatcher(d, o.Deliveries/2)}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &ticketWorker{deliverer: d}); err != nil {
		return nil, fmt.Errorf("add worker: %w", err)
	}
	var err error
	w.river, err = river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		ID:                          d.heartbeat.id, // by which a dead process's tickets are found
		Schema:                      schema,
		Queues:                      map[string]river.QueueConfig{riverQueue: {MaxWorkers: o.Deliveries - o.Deliveries/2}},
		Workers:                     workers,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           fetchPoll,
		JobTimeout:                  -1,
		CompletedJobRetentionPeriod: usedTicketRetention,
		Logger:                      slog.New(quietHandler{o.Logger.Handler()}),
	})
	if err != nil {
		return nil, fmt.Errorf("make River client: %w", err)
	}
	return w, nil
}

// ticketWorker has River's jobs done. It never fails a job because of a function: whether a message is delivered again
// is decided by its row.
type ticketWorker struct {
	river.WorkerDefaults[Ticket]
	*deliverer
}

// Timeout is far away: a delivery lasts as long as the function's lease does.
func (*ticketWorker) Timeout(*river.Job[Ticket]) time.Duration { return longestDelivery }

// Work redeems the ticket.
func (w *ticketWorker) Work(ctx context.Context, job *river.Job[Ticket]) error {
	err := w.redeem(ctx, job.Args, job.ScheduledAt)
	if errors.Is(err, errNotOnRecord) {
		return river.JobSnooze(beatInterval) // after which it will be
	}
	return err
}

// quietHandler passes on only River's warnings and errors.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Start begins to deliver. The context does not end it: [Worker.Stop] does.
func (w *Worker) Start(ctx context.Context) error {
	l, err := w.signOn(ctx)
	if err != nil {
		return err
	}
	if err := w.river.Start(l.calls); err != nil {
		l.end(err)
		return fmt.Errorf("start River: %w", err)
	}
	w.loop = l
	l.tasks.Go(func() { l.run(nil, w.look) }) // River hears of tickets by itself
	l.tasks.Go(func() { l.every(w.sweeper.interval, w.sweep) })
	l.tasks.Go(func() { l.every(keysPoll, w.deleteExpired) })
	l.tasks.Go(func() {
		w.retain(l.running)
		l.every(retentionPoll, w.retain)
	})
	w.queue.local.Store(w.dispatcher)
	return nil
}

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
	err := w.river.Stop(graceful)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStopTimeout)
		defer cancel()
		err = w.river.StopAndCancel(hard)
	}
	w.dispatcher.stop(graceful)
	w.loop.end(context.Canceled)
	if err != nil {
		return fmt.Errorf("stop River: %w", err)
	}
	return nil
}
