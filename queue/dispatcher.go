package queue

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/capacity/concurrency"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
)

// dispatcher delivers messages in the process that accepts them. A message is stored leased to the process, and its
// function is called right after the commit. This saves issuing, fetching, claiming and deleting a ticket. From then on
// it is an ordinary delivery.
//
// The number of slots is limited, and shared between projects. A message for which none is free gets a ticket instead,
// so that any process with free capacity can deliver it.
type dispatcher struct {
	*deliverer

	slots *share.Pool

	mu       sync.Mutex // held while a delivery enters, and by close
	underway sync.WaitGroup
	// calls is the context of all deliveries.
	calls       context.Context
	cancelCalls context.CancelFunc
}

func newDispatcher(w *deliverer, slots int) *dispatcher {
	d := &dispatcher{deliverer: w, slots: share.NewPool(int64(slots))}
	d.calls, d.cancelCalls = context.WithCancel(rescue.WithLogger(context.Background(), w.logger))
	return d
}

// Reservation is a lease that a message can be stored with so that this process delivers it. The zero value reserves
// nothing. A reservation takes no slot until its transaction commits, since the transaction may fail.
type Reservation struct {
	by *dispatcher

	handle, holder string
	lease          time.Duration
}

// Made reports whether the reservation is not the zero value.
func (r Reservation) Made() bool { return r.by != nil }

// reserve returns a reservation if the message is due now, is small, and its project may take a slot besides those
// reserved earlier in the same transaction. If the calls of its deployment have a bound, it needs a ticket. No run
// begins here while messages wait for a slot of its project, or if it may be paused: the log would say that it started.
func (q *Queue) reserve(m message.Message, earlier int) Reservation {
	d := q.local.Load()
	if d == nil || m.Delay > 0 || m.Gated || len(m.Body) > smallBody ||
		m.BeginsRun && (d.othersWait(m.Project) || q.pauses.known().parts[m.Project]) ||
		!d.room(m.Project, earlier) || q.bounds.Known(m.Project, m.DeploymentID) {
		return Reservation{}
	}
	lease := d.lease
	if m.Lasts > 0 {
		lease = m.Lasts + persistTimeout
	}
	return Reservation{by: d, handle: newHandle(), holder: d.heartbeat.ID, lease: lease}
}

// newHandle returns the handle of a new lease.
func newHandle() string { return "rh_" + ulid.Make().String() }

// newHandles returns n handles.
func newHandles(n int) []string {
	handles := make([]string, n)
	for i := range handles {
		handles[i] = newHandle()
	}
	return handles
}

// mayLease is the condition that a message with these columns may be leased to a process without a ticket: calls of a
// deployment with a bound may not; see package concurrency.
func mayLease(process, project, deployment, work string) string {
	return isRegistered(process) + ` AND NOT ` + concurrency.IsBounded(project, deployment, work)
}

// Start delivers the message stored under the reservation, or releases it if no slot is free. It also releases the
// message if the transaction failed: the commit may have succeeded although its response was lost.
func (r Reservation) Start(d Delivery, failed error) {
	if failed != nil || !r.by.enter(d.Project) {
		go r.by.release(d)
		return
	}
	go r.by.dispatch(d)
}

// dispatch delivers a message that has a slot.
func (d *dispatcher) dispatch(m Delivery) {
	defer d.leave(m.Project)
	ctx := share.For(d.calls, string(m.Project))
	err := rescue.Do(ctx, "dispatch", func() error {
		slot, err := d.startSlotSoon(ctx, m.Project)
		if err != nil { // shutting down, or others have to be recorded first
			d.release(m)
			return nil
		}
		defer slot.end()
		m.startSlot = slot
		return d.observed(ctx, m, 0, func() {})
	})
	if err != nil {
		d.logger.ErrorContext(ctx, "deliver", "message", m.ID, "error", err)
	}
}

// release makes a message due that cannot be delivered here. If that fails, other processes get the message when its
// lease expires or this process is declared dead.
func (d *dispatcher) release(m Delivery) {
	err := rescue.Do(d.calls, "release", func() error { return d.deliverer.release(d.calls, m.Lease) })
	if err != nil {
		d.logger.WarnContext(d.calls, "release message", "message", m.ID, "error", err)
	}
}

// othersWait reports whether messages are due for which the project has no slot here.
func (d *dispatcher) othersWait(p entities.Project) bool {
	return d.backlog.Load() && d.deliverer.slots.Room(string(p), shareFactor) <= 0
}

// room reports whether the project may take a slot if it takes more of them first.
func (d *dispatcher) room(p entities.Project, more int) bool {
	return d.stopping.Err() == nil && d.slots.Room(string(p), shareFactor) > int64(more)
}

// enter takes a slot if the project may have one, and reports whether it did.
func (d *dispatcher) enter(p entities.Project) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping.Err() != nil || !d.slots.Try(string(p), 1, shareFactor) {
		return false
	}
	d.underway.Add(1)
	return true
}

func (d *dispatcher) leave(p entities.Project) {
	d.slots.Release(string(p), 1)
	d.underway.Done()
}

// close begins to stop the process. From then on the dispatcher refuses deliveries.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deliverer.stop()
}

// stop waits for the deliveries in progress until the context ends, and then cancels them.
func (d *dispatcher) stop(ctx context.Context) {
	empty := make(chan struct{})
	go func() {
		d.underway.Wait()
		close(empty)
	}()
	select {
	case <-empty:
	case <-ctx.Done():
	}
	d.cancelCalls()
	select {
	case <-empty:
	case <-time.After(hardStopTimeout):
	}
}
