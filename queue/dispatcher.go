package queue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

// dispatcher delivers messages in the process that accepts them. Such a message is stored leased to the process, and
// its function is called right after the commit: no ticket has to be issued, fetched, used up and cleaned away. From
// then on it is a delivery like any other.
//
// The places are limited. A message that finds none gets a ticket, for whichever process has room.
type dispatcher struct {
	*deliverer

	places int

	mu       sync.Mutex
	taken    int
	closed   bool
	underway sync.WaitGroup
	// calls is what deliveries run under.
	calls    context.Context
	breakOff context.CancelFunc
}

func newDispatcher(w *deliverer, places int) *dispatcher {
	d := &dispatcher{deliverer: w, places: places}
	d.calls, d.breakOff = context.WithCancel(context.Background())
	return d
}

// Reservation is a lease that a message may be stored with for this process to deliver it. The zero reservation is
// none. It takes no place, for its transaction may fail.
type Reservation struct {
	by *dispatcher

	handle, holder string
	lease          time.Duration
}

// Made reports whether there is a reservation.
func (r Reservation) Made() bool { return r.by != nil }

// reserve offers to deliver a message here, if it is due now and there is a place besides those reserved earlier in the
// same transaction.
func (q *Queue) reserve(m entities.Message, earlier int) Reservation {
	d := q.local.Load()
	if d == nil || m.Delay > 0 || len(m.Body) > smallBody || !d.room(earlier) {
		return Reservation{}
	}
	lease := d.lease
	if m.Lasts > 0 {
		lease = m.Lasts + persistTimeout
	}
	return Reservation{by: d, handle: "rh_" + ulid.Make().String(), holder: d.heartbeat.ID, lease: lease}
}

// Start delivers the message stored under the reservation, or releases it if its transaction failed. It may be stored
// all the same: the answer to the commit may have been lost.
func (r Reservation) Start(d Delivery, failed error) {
	if failed != nil || !r.by.enter() {
		go r.by.release(d)
		return
	}
	go func() {
		defer r.by.leave()
		if err := r.by.observed(r.by.calls, d, 0, func() {}); err != nil {
			r.by.logger.ErrorContext(r.by.calls, "deliver", "message", d.ID, "error", err)
		}
	}()
}

// release makes a message that is not delivered here due for others. If that fails as well, they get it when its lease
// is over, or its holder is gone.
func (d *dispatcher) release(m Delivery) {
	if err := d.deliverer.release(d.calls, m.Lease); err != nil {
		d.logger.WarnContext(d.calls, "release message", "message", m.ID, "error", err)
	}
}

// releaseMessage makes a message due whose delivery has not begun. The log may already have an attempt of its step: it
// then counts as one that did not reach its function.
func releaseMessage(ctx context.Context, pool *pgxpool.Pool, handle string) error {
	_, err := pool.Exec(ctx, `
		UPDATE messages SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1,
			unreached = unreached + (work = 'step')::integer
		WHERE `+OfLease, handle)
	return wrap("release message", err)
}

// room reports whether there is a place when so many more are taken.
func (d *dispatcher) room(more int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.closed && d.taken+more < d.places
}

// enter takes a place, and reports whether there was one.
func (d *dispatcher) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.taken >= d.places {
		return false
	}
	d.taken++
	d.underway.Add(1)
	return true
}

func (d *dispatcher) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken--
	d.underway.Done()
}

// close takes on nothing more.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// stop waits for deliveries under way until the context ends, and then breaks them off.
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
	d.breakOff()
	select {
	case <-empty:
	case <-time.After(hardStopTimeout):
	}
}
