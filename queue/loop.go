package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

const (
	// duePoll is the pause before searching for due messages again after an error, and in function mode the longest pause
	// between two searches. Hints from other processes may get lost.
	duePoll = time.Second
	// dueRetry is the pause before searching again when another process has locked the due messages.
	dueRetry = 5 * time.Millisecond
	// keysPoll is how often a worker deletes expired idempotency keys and signals; retentionPoll is how often it
	// deletes expired runs.
	keysPoll      = 5 * time.Minute
	retentionPoll = time.Minute
)

// loop is the part of a delivering process that [Worker] and [Drainer] share: a worker runs it until it is stopped, a
// drainer until it is idle. Meanwhile the process is registered, sends heartbeats, issues tickets for messages that
// become due, and runs periodic tasks. The owner chooses the tasks and how tickets are fetched.
//
// The periodic tasks are not River's periodic jobs: those need an elected leader, and in function mode no process lives
// long enough to be elected.
type loop struct {
	*deliverer

	// running ends when the loop stops its tasks. Deliveries in progress continue.
	running context.Context
	halt    context.CancelFunc
	// calls is the context of all deliveries, and cancelCalls cancels them.
	calls       context.Context
	cancelCalls context.CancelCauseFunc
	// beating ends when the process deregisters.
	beating    context.Context
	deregister context.CancelFunc

	tasks, deliveries, beats sync.WaitGroup

	pauses chan struct{} // has an item when what is paused should be read

	steady atomic.Bool // the process has sent heartbeats for long enough to declare others dead
}

// startLoop registers the process and starts its heartbeat. This comes before it takes any lease: other processes take
// over leases only from registered processes, so a lease taken earlier would be held until it expires.
func startLoop(ctx context.Context, w *deliverer) (*loop, error) {
	ctx = context.WithoutCancel(ctx)
	if _, err := w.heartbeat.Beat(ctx); err != nil {
		w.heartbeat.SignOff(ctx)
		return nil, fmt.Errorf("sign on: %w", err)
	}
	if _, err := w.queue.pauses.read(ctx); err != nil { // before it calls anything
		w.heartbeat.SignOff(ctx)
		return nil, err
	}
	l := &loop{deliverer: w, pauses: make(chan struct{}, 1)}
	l.running, l.halt = context.WithCancel(ctx)
	l.calls, l.cancelCalls = context.WithCancelCause(ctx)
	l.beating, l.deregister = context.WithCancel(ctx)
	l.beats.Go(func() { rescue.Loop(l.beating, "heartbeat", func() { l.beat(ctx) }) })
	l.task("limits", func() { w.queue.limits.Run(l.running, w.logger) })
	l.task("bounds", func() { w.queue.bounds.Run(l.running, w.logger) })
	l.task("pauses", func() { w.queue.followPauses(l.running, l.pauses, w.logger) })
	return l, nil
}

// task runs what ends when the loop halts.
func (l *loop) task(name string, run func()) {
	l.tasks.Go(func() { rescue.Loop(l.running, name, run) })
}

// end cancels the calls in progress, waits until their results are stored, and deregisters the process. It cancels them
// before it waits for the periodic tasks, because the sweeper runs under their context and may be in a long pass.
func (l *loop) end(cause error) {
	l.halt()
	l.cancelCalls(cause)
	l.tasks.Wait()
	l.deliveries.Wait()
	l.http.CloseIdleConnections()
	l.deregister()
	l.beats.Wait()
}

// stopTasks ends the periodic tasks, which include issuing tickets.
func (l *loop) stopTasks() {
	l.halt()
	l.tasks.Wait()
}

// beat sends heartbeats until the process deregisters. Each also finds out whether messages are due and anything is
// paused, as hints may have got lost; after one that failed, the loop searches itself. Beat never cancels a heartbeat
// that is being sent: that would close the connection, and the connection's session is the proof that the process is
// alive.
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
		untilDue, err := l.heartbeat.Beat(ctx)
		if err != nil {
			l.logger.WarnContext(ctx, "heartbeat", "error", err)
		}
		if err != nil || untilDue < cluster.BeatInterval { // before the next heartbeat can tell
			poke(l.wake)
		}
		if err != nil || l.heartbeat.Paused() || l.queue.pauses.known().any() {
			poke(l.pauses)
		}
		if l.heartbeat.LimitsAwaited() {
			l.queue.limits.CheckAll()
			l.queue.bounds.CheckSoon()
		}
		if beats == cluster.SteadyBeats {
			l.steady.Store(true)
			poke(l.wake)
		}
	}
}

// every runs a task periodically until the loop halts.
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

// run calls poll whenever messages may be due, until the loop halts. Poll returns the time after which to call it
// again, if no hint and no heartbeat leads to it earlier.
func (l *loop) run(poll func(context.Context) time.Duration) {
	sooner, cancel := l.queue.hub.Subscribe(timerTopic)
	defer cancel()
	due, cancel := l.queue.hub.Subscribe(dueTopic)
	defer cancel()
	for l.running.Err() == nil {
		next := poll(l.running)
		select {
		case <-l.running.Done():
		case <-l.wake:
		case <-due:
		case <-sooner:
		case <-time.After(max(next, dueRetry)):
		}
	}
}

// poke puts an item into a channel that has room for one, unless it is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sweep lets the sweeper make a pass if one is due.
func (w *deliverer) sweep(ctx context.Context) {
	w.try(ctx, "find stranded runs", func() error {
		return rescue.Do(ctx, "sweep", func() error {
			_, err := w.sweeper.Sweep(ctx)
			return err
		})
	})
}

// countEvents brings the statistics up to date. All processes share the passes of the sweeper, so one of them counts.
func (w *deliverer) countEvents(ctx context.Context) {
	if w.options.Stats == nil {
		return
	}
	w.try(ctx, "count events", func() error {
		return rescue.Do(ctx, "stats", func() error { return w.options.Stats.Follow(ctx) })
	})
}

// tellDeadlocks logs that runs wait for each other's slots of limits.
func (w *deliverer) tellDeadlocks(ctx context.Context) {
	switch n, err := w.queue.countDeadlocked(ctx); {
	case err != nil && ctx.Err() == nil:
		w.logger.ErrorContext(ctx, "find deadlocks over limits", "error", err)
	case n > 0:
		w.logger.WarnContext(ctx, "deadlock over limits: cancel one of the runs", "runs", n)
	}
}

// deleteExpired deletes expired idempotency keys and signals, old events of triggers, old clocks of limits, and pauses
// of runs that have ended.
func (w *deliverer) deleteExpired(ctx context.Context) {
	rows := pg.NewPool(w.queue.pool)
	for what, task := range map[string]func() error{
		"delete expired idempotency keys": func() error { return deleteExpiredKeys(ctx, w.queue.pool) },
		"delete expired signals":          func() error { return store.DeleteSpentSignals(ctx, rows) },
		"delete old events of triggers":   func() error { return trigger.Prune(ctx, rows) },
		"end the pauses of ended runs":    func() error { return hold.EndOfRuns(ctx, w.queue.pool) },
		"delete old clocks":               func() error { return limit.DeleteOldClocks(ctx, rows) },
	} {
		w.try(ctx, what, task)
	}
}

// try performs a periodic task, and logs its failure unless the process stops.
func (w *deliverer) try(ctx context.Context, what string, task func() error) {
	if err := task(); err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, what, "error", err)
	}
}

// retain deletes runs whose retention time has passed.
func (w *deliverer) retain(ctx context.Context) {
	if w.options.Retention == nil {
		return
	}
	done, err := w.options.Retention.Pass(ctx)
	if done.Runs+done.Streams+done.Payloads > 0 {
		w.logger.InfoContext(ctx, "retention", "runs", done.Runs, "orphan_streams", done.Streams,
			"payloads", done.Payloads)
	}
	if err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "retention", "error", err)
	}
}
