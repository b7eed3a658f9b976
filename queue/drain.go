package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errDrainOver cancels the calls that outlast their drain. Unlike a call that is canceled by a shutdown, such a call
// has failed: it is likely to take as long the next time.
var errDrainOver = errors.New("canceled because it took longer than the drain's budget and grace period")

// drainPause is how long a drain waits before it reads again what is due: another process seems to be taking it.
const drainPause = 100 * time.Millisecond

// Drainer delivers in function mode, where code runs only during requests: each drain lasts for the budget of a request
// or until the process is idle. A drainer does the same as a [Worker], but takes tickets out of River's table itself.
// All drains of a process share one session, with one heartbeat.
type Drainer struct {
	worker *deliverer
	// gate is a mutex that can be waited for under a context. It is held while a session starts or ends.
	gate chan struct{}

	// due receives an item before a call that makes a message due returns, so that the end of a request can check it.
	due <-chan struct{}

	mu      sync.Mutex
	session *session // nil while no drain runs
	users   int      // drains that use the session

	draining sync.WaitGroup
}

// NewDrainer returns a drainer for the queue. [WorkerOptions.Grace] is how long calls in progress may continue after a
// drain's budget.
func (q *Queue) NewDrainer(o WorkerOptions) *Drainer {
	d := &Drainer{worker: newDeliverer(q, o), gate: make(chan struct{}, 1)}
	d.worker.sweeper.AfterPass = d.worker.maintain
	d.due, _ = q.hub.Subscribe(dueTopic) // for the life of the process
	return d
}

// maintain runs the periodic tasks for which a worker has timers. It runs after each pass of the sweeper: all processes
// share the passes, so the tasks run equally often however short the drains are.
func (w *deliverer) maintain(ctx context.Context) {
	w.deleteExpired(ctx)
	w.retain(ctx)
	w.countEvents(ctx)
}

// Drained is the result of a drain.
type Drained struct {
	// Delivered counts the deliveries that the process made during the drain, Failed those that will be retried.
	Delivered, Failed int64
	backlog
}

// backlog describes the messages that remain to be delivered.
type backlog struct {
	// Due counts the messages that are due now, up to a thousand.
	Due int
	// NextDueAt is when the next message is due, if none is due now; nil if there is none.
	NextDueAt *time.Time
}

// Drain is a request to deliver messages. Its creator must call [Drain.Run], which also ends it.
type Drain struct {
	drainer           *Drainer
	session           *session
	since             int // polls started before this drain
	delivered, failed int64
}

// Wanted reports whether this process made a message due that none of its drains will see. It reports each such event
// once. A server calls it at the end of a request to decide whether to request a drain.
func (d *Drainer) Wanted() bool {
	d.mu.Lock()
	awake := d.users > 0
	d.mu.Unlock()
	return !awake && d.forget()
}

// forget clears the signal that a message was made due, and reports whether it was set.
func (d *Drainer) forget() bool {
	select {
	case <-d.due:
		return true
	default:
		return false
	}
}

// StartDrain starts a drain. It fails when the database is unavailable, and with [ErrStopping] after [Drainer.Stop].
func (d *Drainer) StartDrain(ctx context.Context) (*Drain, error) {
	drain := &Drain{drainer: d}
	if err := drain.join(ctx); err != nil {
		return nil, fmt.Errorf("start drain: %w", err)
	}
	t := &d.worker.tally
	drain.delivered, drain.failed = t.delivered.Load(), t.failed.Load()
	return drain, nil
}

// Stop ends the budgets of all drains and waits for them. Later drains fail to start.
func (d *Drainer) Stop() {
	d.mu.Lock()
	d.worker.stop()
	d.mu.Unlock()
	d.worker.serializer.close()
	d.draining.Wait()
}

// join joins the process's session, and starts one if there is none.
func (r *Drain) join(ctx context.Context) (err error) {
	d := r.drainer
	if !d.enter() {
		return ErrStopping
	}
	defer func() {
		if err != nil {
			d.draining.Done()
		}
	}()
	select {
	case d.gate <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.gate }()
	if d.session == nil { // the gate protects it from changing
		s, err := d.worker.startSession(ctx)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.session = s
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.users++
	d.mu.Unlock()
	r.session = d.session
	r.since = r.session.resume()
	return nil
}

// ErrStopping is the error of requests that a stopping server refuses.
var ErrStopping = errors.New("the server is stopping")

// enter registers a drain, which [Drainer.Stop] then waits for. It reports false after Stop.
func (d *Drainer) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.worker.stopping.Err() != nil {
		return false
	}
	d.draining.Add(1)
	return true
}

// Run delivers messages that are due or become due, until none is left or the budget is spent; then calls in progress
// have the grace period. Within the budget, it waits for at least linger even if nothing is due.
func (r *Drain) Run(ctx context.Context, budget, linger time.Duration) (Drained, error) {
	ctx = context.WithoutCancel(ctx)
	deadline, cancel := context.WithTimeout(r.drainer.worker.stopping, budget)
	defer cancel()
	lingering, cancel := context.WithTimeout(deadline, linger)
	defer cancel()
	for {
		r.session.wait(deadline, lingering, r.since)
		r.leave(ctx)
		r.drainer.forget() // the backlog, read next, includes all messages that were signaled
		left, err := readBacklog(ctx, r.drainer.worker.queue.pool)
		if err != nil || left.Due == 0 || deadline.Err() != nil {
			return r.done(left), err
		}
		// The message arrived while the session ended, or another process is about to take it.
		if pause(deadline, drainPause); r.join(deadline) != nil {
			return r.done(left), nil
		}
	}
}

func (r *Drain) done(left backlog) Drained {
	t := &r.drainer.worker.tally
	return Drained{t.delivered.Load() - r.delivered, t.failed.Load() - r.failed, left}
}

// leave ends the session if this was the last drain that uses it.
func (r *Drain) leave(ctx context.Context) {
	d := r.drainer
	defer d.draining.Done()
	d.mu.Lock()
	d.users--
	last := d.users == 0
	if last {
		r.session.pause()
	}
	d.mu.Unlock()
	if !last {
		return
	}
	r.session.finish(ctx, d.worker.options.Grace)
	d.gate <- struct{}{}
	defer func() { <-d.gate }()
	d.mu.Lock()
	ours := d.users == 0 && d.session == r.session // otherwise another drain has joined the session
	if ours {
		d.session = nil
	}
	d.mu.Unlock()
	switch {
	case !ours:
	case d.worker.stopping.Err() != nil:
		r.session.end(context.Canceled)
	default:
		r.session.end(errDrainOver)
	}
}

// pause waits, and reports false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
