package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errDrainOver is why a call is broken off that outlasts its drain. Unlike a call broken off by a shutdown it counts as
// a failure: it may well take as long the next time.
var errDrainOver = errors.New("it takes longer than a drain's budget and grace period together")

// drainPause is how long a drain waits before it looks again for due messages that other processes seemed to take.
const drainPause = 100 * time.Millisecond

// Drainer delivers in function mode, where code runs only during requests: for as long as a request asks for it, or
// until the process is idle. It does what a [Worker] does, but takes tickets out of River's table itself. All drains of
// a process share one session, with one heartbeat.
type Drainer struct {
	worker *deliverer
	// gate is held while a session begins or ends.
	gate chan struct{}

	issued <-chan struct{} // see [Queue.Issued]

	mu      sync.Mutex
	session *session // nil while no drain runs
	users   int      // drains that use the session

	stopping context.Context
	stop     context.CancelFunc
	draining sync.WaitGroup
}

// NewDrainer makes a drainer for the queue. [WorkerOptions.Grace] is how long the calls under way may go on when a
// drain's budget is over.
func NewDrainer(q *Queue, o WorkerOptions) *Drainer {
	d := &Drainer{worker: newDeliverer(q, o), gate: make(chan struct{}, 1)}
	d.worker.sweeper.AfterPass = d.worker.tidy
	d.issued, _ = q.Issued() // for as long as the process lives
	d.stopping, d.stop = context.WithCancel(context.Background())
	return d
}

// tidy does the periodic work for which a worker has timers. It runs after the sweeper's turns, which all processes
// share.
func (w *deliverer) tidy(ctx context.Context) {
	w.deleteExpired(ctx)
	w.retain(ctx)
}

// Drained is what a drain did, and what it left.
type Drained struct {
	// Delivered counts the deliveries of the process meanwhile, Failed those of them that came to nothing.
	Delivered, Failed int64
	backlog
}

// backlog is what there is to deliver.
type backlog struct {
	// Due counts what could be delivered at once, up to a thousand.
	Due int
	// NextDueAt is when something is due next, if there is nothing now; nil when nothing is known to come.
	NextDueAt *time.Time
}

// Drain is a request to deliver messages. It must be ended by [Drain.Run].
type Drain struct {
	drainer           *Drainer
	session           *session
	since             int // looks begun before this drain
	delivered, failed int64
}

// Wanted reports, once, whether this process made a message due that none of its drains will see. It is called after a
// request, to have another request drain.
func (d *Drainer) Wanted() bool {
	d.mu.Lock()
	awake := d.users > 0
	d.mu.Unlock()
	return !awake && d.forget()
}

// forget clears the note that a message was made due, and reports whether there was one.
func (d *Drainer) forget() bool {
	select {
	case <-d.issued:
		return true
	default:
		return false
	}
}

// Begin begins a drain. It fails when the database is away, and with [ErrStopping].
func (d *Drainer) Begin(ctx context.Context) (*Drain, error) {
	drain := &Drain{drainer: d}
	if err := drain.join(ctx); err != nil {
		return nil, fmt.Errorf("begin drain: %w", err)
	}
	t := &d.worker.tally
	drain.delivered, drain.failed = t.delivered.Load(), t.failed.Load()
	return drain, nil
}

// Stop ends the drains under way as if their budgets were over, and waits for them. No drain begins any more.
func (d *Drainer) Stop() {
	d.mu.Lock()
	d.stop()
	d.mu.Unlock()
	d.worker.serializer.close()
	d.draining.Wait()
}

// join joins the process's session, and begins one if necessary.
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
	if d.session == nil { // it only changes under the gate
		s, err := d.worker.begin(ctx)
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

// ErrStopping is the error of a server that stops and takes on nothing more.
var ErrStopping = errors.New("the server is stopping")

// enter reports whether a drain may begin, which [Drainer.Stop] then waits for.
func (d *Drainer) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping.Err() != nil {
		return false
	}
	d.draining.Add(1)
	return true
}

// Run delivers what is due, and what becomes due meanwhile, until nothing is left, or until the budget is over and then
// the grace period of calls under way. It waits at least for linger, within the budget, even if nothing is due.
func (r *Drain) Run(ctx context.Context, budget, linger time.Duration) (Drained, error) {
	ctx = context.WithoutCancel(ctx)
	deadline, cancel := context.WithTimeout(r.drainer.stopping, budget)
	defer cancel()
	lingering, cancel := context.WithTimeout(deadline, linger)
	defer cancel()
	for {
		r.session.wait(deadline, lingering, r.since)
		r.leave(ctx)
		r.drainer.forget() // what was made due is committed, so the backlog includes it
		left, err := readBacklog(ctx, r.drainer.worker.queue.pool)
		if err != nil || left.Due == 0 || deadline.Err() != nil {
			return r.done(left), err
		}
		// It came as the session ended. Or another process takes it, and then there is time.
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
	ours := d.users == 0 && d.session == r.session // or another drain has come, and goes on with it
	if ours {
		d.session = nil
	}
	d.mu.Unlock()
	switch {
	case !ours:
	case d.stopping.Err() != nil:
		r.session.end(context.Canceled)
	default:
		r.session.end(errDrainOver)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
