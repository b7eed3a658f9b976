package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

const (
	// River fetches at once when it is hinted, then at most this often; unhinted it looks each second.
	fetchCooldown = 5 * time.Millisecond
	fetchPoll     = time.Second
	// The timer looks at least this often, for messages that other processes delayed.
	timerPoll = time.Second
	// Tickets that were used are of no interest.
	ticketRetention = time.Minute
	keysPoll        = 5 * time.Minute
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
	Retention *upkeep.Retention
	// Observer, if there is one, watches the deliveries.
	Observer Observer
	Logger   *slog.Logger
}

// Worker delivers messages.
type Worker struct {
	queue   *Queue
	options WorkerOptions
	logger  *slog.Logger
	http    *http.Client
	river   *river.Client[pgx.Tx]
	pulse   *pulse
	sweeper *sweeper
	memory  *memory
	direct  *direct
	turns   *turns
	lease   time.Duration // of each delivery at first
	// keepPause is how often a delivery that waits for memory says so.
	keepPause time.Duration
	tally     tally

	loops, beating sync.WaitGroup
	stop, signOff  context.CancelFunc
}

// NewWorker makes a worker for the queue, whose tables are in the given schema.
func NewWorker(q *Queue, schema string, o WorkerOptions) (*Worker, error) {
	w := newWorker(q, o)
	// Half of the places are for tickets, so that what has waited for long finds some also when there is always
	// something new.
	w.direct = newDirect(&deliverer{Worker: w}, o.Deliveries/2)
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &deliverer{Worker: w}); err != nil {
		return nil, fmt.Errorf("add worker: %w", err)
	}
	var err error
	w.river, err = river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		ID:                          w.pulse.id, // by which a dead process's tickets are found
		Schema:                      schema,
		Queues:                      map[string]river.QueueConfig{riverQueue: {MaxWorkers: o.Deliveries - o.Deliveries/2}},
		Workers:                     workers,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           fetchPoll,
		JobTimeout:                  -1,
		CompletedJobRetentionPeriod: ticketRetention,
		Logger:                      slog.New(quietHandler{o.Logger.Handler()}),
	})
	if err != nil {
		return nil, fmt.Errorf("make River client: %w", err)
	}
	return w, nil
}

// newWorker makes a worker without a River client.
func newWorker(q *Queue, o WorkerOptions) *Worker {
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	return &Worker{
		queue: q, options: o, logger: o.Logger, http: newDeliveryClient(o.Allowed), lease: leaseTime,
		keepPause: ticketTime / 3,
		pulse:     newPulse(q, o.Logger), sweeper: newSweeper(q, o.Logger), memory: newMemory(o.BodyMemory),
		turns: newTurns(o.Deliveries),
	}
}

// quietHandler passes on only River's warnings and errors.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Start begins to deliver. The context does not end it: [Worker.Stop] does.
func (w *Worker) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	// On record before it holds anything: nobody takes over from a process that nobody knows.
	if err := w.pulse.turn(ctx); err != nil {
		w.pulse.leave(ctx)
		return fmt.Errorf("sign on: %w", err)
	}
	if err := w.river.Start(ctx); err != nil {
		w.pulse.leave(ctx)
		return fmt.Errorf("start River: %w", err)
	}
	beating, signOff := context.WithCancel(ctx)
	w.signOff = signOff
	w.beating.Go(func() { w.pulse.run(beating) })
	ctx, w.stop = context.WithCancel(ctx)
	w.loops.Go(func() { w.timer(ctx) })
	w.loops.Go(func() { w.forget(ctx) })
	w.loops.Go(func() { w.sweeper.run(ctx) })
	if w.options.Retention != nil {
		w.loops.Go(func() { w.retain(ctx) })
	}
	w.queue.desk.Store(w.direct)
	return nil
}

// Stop takes on no more deliveries, waits for those under way until the grace period or the context is
// over, and then breaks the calls off and leaves the leases with the functions.
func (w *Worker) Stop(ctx context.Context) error {
	w.queue.desk.CompareAndSwap(w.direct, nil)
	w.direct.close()
	w.stop()
	w.loops.Wait()
	w.turns.close()
	graceful, cancel := context.WithTimeout(ctx, w.options.Grace)
	defer cancel()
	err := w.river.Stop(graceful)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStopTimeout)
		defer cancel()
		err = w.river.StopAndCancel(hard)
	}
	w.direct.stop(graceful)
	w.http.CloseIdleConnections()
	w.signOff()
	w.beating.Wait()
	if err != nil {
		return fmt.Errorf("stop River: %w", err)
	}
	return nil
}

// timer hands tickets to messages as they become due.
func (w *Worker) timer(ctx context.Context) {
	news, cancel := w.queue.hub.Subscribe(timerTopic)
	defer cancel()
	for ctx.Err() == nil {
		next, err := w.handOut(ctx)
		if err != nil && ctx.Err() == nil {
			w.logger.ErrorContext(ctx, "hand out tickets", "error", err)
			next = timerPoll
		}
		clock := time.NewTimer(min(next, timerPoll))
		select {
		case <-ctx.Done():
		case <-news:
		case <-clock.C:
		}
		clock.Stop()
	}
}

// handOut issues the tickets that are due and returns how long until the next one is.
func (w *Worker) handOut(ctx context.Context) (time.Duration, error) {
	for {
		next, err := untilDue(ctx, w.queue.pool)
		if err != nil || next > 0 {
			return next, err
		}
		full, err := w.handOutBatch(ctx)
		if err != nil {
			return 0, err
		}
		w.queue.wakeWorkers(nil)
		if !full {
			// What is due and was not taken is locked by another process that is at it.
			return fetchCooldown, nil
		}
	}
}

func (w *Worker) handOutBatch(ctx context.Context) (full bool, err error) {
	err = pg.InTx(ctx, w.queue.pool, func(tx pgx.Tx) error {
		tickets, err := takeDue(ctx, tx, parking{w.options.MaxDeliveries, w.options.FailureWindow})
		full = len(tickets) == dueBatch
		if err != nil || len(tickets) == 0 {
			return err
		}
		return w.queue.issue(ctx, tx, tickets)
	})
	return full, err
}

// forget drops idempotency keys and signals whose time is over.
func (w *Worker) forget(ctx context.Context) {
	ticker := time.NewTicker(keysPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.forgetOnce(ctx)
	}
}

func (w *Worker) forgetOnce(ctx context.Context) {
	if err := forgetKeys(ctx, w.queue.pool); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "forget idempotency keys", "error", err)
	}
	if err := store.DeleteSpentSignals(ctx, w.queue.pool); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "forget signals", "error", err)
	}
}
