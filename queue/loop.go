package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

const (
	// duePoll is how often a loop looks for due messages at least: other processes may have delayed some.
	duePoll = time.Second
	// dueRetry is how soon it looks again for messages that another process has locked to issue their tickets.
	dueRetry = 5 * time.Millisecond
	// keysPoll is how often a worker deletes expired idempotency keys and signals, retentionPoll how often it deletes
	// expired runs.
	keysPoll      = 5 * time.Minute
	retentionPoll = time.Minute
)

// loop is the time in which a process delivers: a [Worker]'s lasts until it is stopped, a [Drainer]'s until it is idle.
// For as long the process is on record and beats, issues tickets for messages that become due, and does its periodic
// work. Its owner says which that is, and who fetches tickets.
//
// Periodic work is not a periodic job of River's: those need an elected leader, and in function mode no process lives
// long enough to be elected.
type loop struct {
	*deliverer

	// running ends when the loop takes on nothing more.
	running context.Context
	halt    context.CancelFunc
	// calls is what deliveries run under, and breakOff ends them.
	calls    context.Context
	breakOff context.CancelCauseFunc
	// beating ends when the process leaves the record.
	beating context.Context
	signOff context.CancelFunc

	tasks, deliveries, beats sync.WaitGroup

	news   chan struct{} // has an item when there may be tickets
	steady atomic.Bool   // the process has beaten for long enough to tell which others are dead
}

// signOn puts the process on record, before it holds anything: no process takes over from a process that is on no
// record.
func (w *deliverer) signOn(ctx context.Context) (*loop, error) {
	ctx = context.WithoutCancel(ctx)
	if err := w.heartbeat.Beat(ctx); err != nil {
		w.heartbeat.SignOff(ctx)
		return nil, fmt.Errorf("sign on: %w", err)
	}
	l := &loop{deliverer: w, news: make(chan struct{}, 1)}
	l.running, l.halt = context.WithCancel(ctx)
	l.calls, l.breakOff = context.WithCancelCause(ctx)
	l.beating, l.signOff = context.WithCancel(ctx)
	l.beats.Go(func() { l.beat(ctx) })
	return l, nil
}

// end breaks the calls under way off, lets their messages go, and takes the process off the record.
func (l *loop) end(cause error) {
	l.stopTasks()
	l.breakOff(cause)
	l.deliveries.Wait()
	l.http.CloseIdleConnections()
	l.signOff()
	l.beats.Wait()
}

// stopTasks ends the periodic work and the issuing of tickets.
func (l *loop) stopTasks() {
	l.halt()
	l.tasks.Wait()
}

// beat beats until the process signs off. It breaks no beat off: that would cost the connection.
func (l *loop) beat(ctx context.Context) {
	ticker := time.NewTicker(cluster.BeatInterval)
	defer ticker.Stop()
	for beats := 1; ; beats++ {
		select {
		case <-l.beating.Done():
			l.heartbeat.SignOff(ctx)
			return
		case <-ticker.C:
		}
		if err := l.heartbeat.Beat(ctx); err != nil {
			l.logger.WarnContext(ctx, "heartbeat", "error", err)
		}
		if beats == cluster.SteadyBeats {
			l.steady.Store(true)
			poke(l.news)
		}
	}
}

// every does periodic work until the loop halts.
func (l *loop) every(interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-l.running.Done():
			return
		case <-ticker.C:
		}
		do(l.running)
	}
}

// run calls look whenever messages may be due, or tickets issued, until the loop halts. Look returns when to look
// again.
func (l *loop) run(issued <-chan struct{}, look func(context.Context) time.Duration) {
	sooner, cancel := l.queue.hub.Subscribe(timerTopic)
	defer cancel()
	for l.running.Err() == nil {
		next := look(l.running)
		clock := time.NewTimer(min(max(next, dueRetry), duePoll))
		select {
		case <-l.running.Done():
		case <-l.news:
		case <-issued:
		case <-sooner:
		case <-clock.C:
		}
		clock.Stop()
	}
}

// poke puts an item into a channel that has room for one, unless it is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// issueDue issues the tickets of messages that are due, and returns how long until the next one is.
func (w *deliverer) issueDue(ctx context.Context) (time.Duration, error) {
	for {
		next, err := untilDue(ctx, w.queue.pool)
		if err != nil || next > 0 {
			return next, err
		}
		full, err := w.issueBatch(ctx)
		if err != nil {
			return 0, err
		}
		w.queue.wakeWorkers(nil)
		if !full {
			// What is due and was not taken is locked by another process that is at it.
			return dueRetry, nil
		}
	}
}

func (w *deliverer) issueBatch(ctx context.Context) (full bool, err error) {
	err = pg.InTx(ctx, w.queue.pool, func(tx pgx.Tx) error {
		issued, err := takeDue(ctx, tx, parking{w.options.MaxDeliveries, w.options.FailureWindow})
		full = len(issued) == dueBatch
		if err != nil || len(issued) == 0 {
			return err
		}
		return w.queue.issuer.Issue(ctx, tx, issued)
	})
	return full, err
}

// sweep gives the sweeper its turn.
func (w *deliverer) sweep(ctx context.Context) {
	if _, err := w.sweeper.Sweep(ctx); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "look for stranded runs", "error", err)
	}
}

// deleteExpired deletes idempotency keys and signals whose time is over.
func (w *deliverer) deleteExpired(ctx context.Context) {
	if err := deleteExpiredKeys(ctx, w.queue.pool); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "delete expired idempotency keys", "error", err)
	}
	if err := store.DeleteSpentSignals(ctx, w.queue.pool); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "delete expired signals", "error", err)
	}
}

// retain deletes runs whose retention is over.
func (w *deliverer) retain(ctx context.Context) {
	if w.options.Retention == nil {
		return
	}
	done, err := w.options.Retention.Pass(ctx)
	if done.Runs > 0 || done.Streams > 0 {
		w.logger.InfoContext(ctx, "retention", "runs", done.Runs, "orphan_streams", done.Streams)
	}
	if err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "retention", "error", err)
	}
}
