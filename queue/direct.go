package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

// direct delivers in the process that has accepted a message. Such a message is stored leased to the process, and
// its function is called as soon as that is committed: there is no ticket to be issued, fetched, used up and put
// away. Whatever becomes of the message then is the same as if its ticket had been claimed.
//
// There are places for so many deliveries. What finds none gets a ticket, for whichever process has room.
type direct struct {
	worker *deliverer
	places int

	mu     sync.Mutex
	taken  int
	closed bool
	empty  chan struct{} // is closed when it is closed and no place is taken
	// over ends when deliveries are to be broken off.
	over     context.Context
	breakOff context.CancelFunc
}

func newDirect(w *deliverer, places int) *direct {
	d := &direct{worker: w, places: places, empty: make(chan struct{})}
	d.over, d.breakOff = context.WithCancel(context.Background())
	return d
}

// desk is where a process that delivers can be found; nothing in one that does not.
type desk struct{ atomic.Pointer[direct] }

// offer is a lease that a message may be stored with, so that this process delivers it. The zero offer is none.
// No place is taken by it, for its transaction may come to nothing.
type offer struct {
	*direct

	handle, holder string
	lease          time.Duration
}

// offer offers to deliver a message, if it is due now and there is a place besides those for what was offered before
// in the same transaction.
func (k *desk) offer(m entities.Message, before int) offer {
	d := k.Load()
	if d == nil || m.Delay > 0 || len(m.Body) > smallBody || !d.room(before) {
		return offer{}
	}
	lease := d.worker.lease
	if m.Lasts > 0 {
		lease = m.Lasts + settleTimeout
	}
	return offer{direct: d, handle: "rh_" + ulid.Make().String(), holder: d.worker.pulse.id, lease: lease}
}

// begin delivers what was stored with the offer, unless its transaction has failed. That is not certain: it may be
// the answer to the commit that got lost. What cannot be delivered here is due for others.
func (o offer) begin(d delivery, failed error) {
	if failed != nil || !o.enter() {
		go o.handBack(d)
		return
	}
	go func() {
		defer o.leave()
		if err := o.worker.observed(o.over, d, 0, func() {}); err != nil {
			o.worker.logger.ErrorContext(o.over, "deliver", "message", d.ID, "error", err)
		}
	}()
}

// handBack ends the lease on what was not delivered. If that fails as well, others do once it is over, or its holder
// is gone.
func (d *direct) handBack(m delivery) {
	if err := d.worker.handBack(d.over, m.Lease); err != nil {
		d.worker.logger.WarnContext(d.over, "hand message back", "message", m.ID, "error", err)
	}
}

// handBack makes a message due whose delivery has not begun. The log may have it that an attempt of a step began: that
// is one then that did not reach its function.
func handBack(ctx context.Context, pool *pgxpool.Pool, handle string) error {
	_, err := pool.Exec(ctx, `
		UPDATE messages SET lease = '', holder = '', due_at = now(), delivery_count = delivery_count - 1,
			unreached = unreached + (work = 'step')::integer
		WHERE `+ofLease, handle)
	return wrap("hand message back", err)
}

// room reports whether there is a place when so many more are taken.
func (d *direct) room(more int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.closed && d.taken+more < d.places
}

// enter takes a place, and reports whether there was one.
func (d *direct) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.taken >= d.places {
		return false
	}
	d.taken++
	return true
}

func (d *direct) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken--
	d.settle()
}

// settle says that nothing is left to wait for, if so. The lock is held.
func (d *direct) settle() {
	if d.closed && d.taken == 0 {
		close(d.empty)
	}
}

// close takes on nothing more.
func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.settle()
	}
}

// stop waits for deliveries under way until the context ends, and breaks them off then.
func (d *direct) stop(ctx context.Context) {
	select {
	case <-d.empty:
	case <-ctx.Done():
	}
	d.breakOff()
	select {
	case <-d.empty:
	case <-time.After(hardStopTimeout):
	}
}
