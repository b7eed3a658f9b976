package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// ticketsOnly makes the replica issue tickets for its messages, as if other processes had sent them.
func (r *replica) ticketsOnly() { r.Attach(nil) }

// issue issues tickets for the messages that are due, as the loop of a worker does.
func (r *replica) issue(t testing.TB) {
	t.Helper()
	if _, err := r.newWorker(t).issueDue(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantNoTickets checks that no ticket has been issued.
func (r *replica) wantNoTickets(t testing.TB) {
	t.Helper()
	r.Want(t, "tickets", 0, `SELECT count(*) FROM river_job`)
}

func TestDeliveringProcessIssuesNoTicket(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t)
	c := a.next(t)
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	if s := r.stored(t, id); s.Lease != c.handle() || s.DeliveryCount != 1 {
		t.Errorf("got %+v, want the lease %s of delivery 1", s, c.handle())
	}
	r.ack(t, c)
	r.gone(t, id)
	r.wantNoTickets(t)
}

// TestMessageWithoutDeploymentCanBeReceived receives a message that was reserved but not delivered, so it had no
// ticket.
func TestMessageWithoutDeploymentCanBeReceived(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.worker(t)
	id := r.send(t)
	testdb.Eventually(t, "the delivery is over", func() bool { return r.stored(t, id).Lease == "" })
	m, err := r.Receive(t.Context(), project, topic, id, time.Minute)
	if err != nil || m.ID != id || m.DeliveryCount != 1 {
		t.Errorf("got %+v, %v; want delivery 1 of %s", m, err, id)
	}
	r.wantNoTickets(t)
}

// TestNoMoreDeliveriesThanSlots also checks that messages without a free slot get tickets and are delivered once.
func TestNoMoreDeliveriesThanSlots(t *testing.T) {
	t.Parallel()
	const slots, messages = 6, 60
	var r *replica
	var now, most atomic.Int64
	full := make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		if n := now.Add(1); n == slots {
			fill()
		} else if most.Store(max(most.Load(), n)); n > slots {
			t.Errorf("%d deliveries at once, want %d at most", n, slots)
		}
		<-full
		r.ack(t, c)
		now.Add(-1)
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t, func(o *WorkerOptions) { o.Deliveries = slots })
	race(messages, func(int) string { return r.send(t) })
	seen := map[string]bool{}
	for range messages {
		c := a.next(t)
		if seen[c.id()] || c.count() != "1" {
			t.Errorf("message %s: delivery %s, or one too many", c.id(), c.count())
		}
		seen[c.id()] = true
	}
	testdb.Eventually(t, "all are gone", func() bool { return r.Count(t, `SELECT count(*) FROM messages`) == 0 })
}

// TestReservationOfAnUnregisteredProcessIsVoid: other processes would take over its leases.
func TestReservationOfAnUnregisteredProcessIsVoid(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	d := newDispatcher(r.newWorker(t).deliverer, 1) // of a process that is not registered
	r.local.Store(d)
	id := r.send(t)
	c := a.next(t)
	if n := r.Count(t, `SELECT count(*) FROM river_job WHERE args->>'message' = $1`, id); n != 1 || d.slots.Free() != 1 {
		t.Errorf("got %d tickets and %d deliveries of the unknown process, want 1 and 0", n, 1-d.slots.Free())
	}
	r.ack(t, c)
	// The same holds for work.
	if s := r.storeWork(t, invocation()); s.Taken || s.Lease != "" || s.DueAt.After(s.ClaimedAt) {
		t.Errorf("got %+v, want it due now and without a lease", s)
	}
}

// invocation is the work of invoking a run that does not exist.
func invocation() message.Message {
	return message.Message{
		Project: project, DeploymentID: deployment, Topic: "order", RunID: entities.NewRunID(time.Now()),
		Work: message.WorkRun,
	}
}

// storeWork stores a piece of work under a reservation of the replica's dispatcher.
func (r *replica) storeWork(t *testing.T, m message.Message) storedWork {
	t.Helper()
	s := storedWork{Delivery: Delivery{ID: "msg_" + ulid.Make().String()}, Reservation: r.reserve(m, 0)}
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		pg.Batch{Batch: &b}.Add(upsertWork(m, &s))
		return pg.SendQueued(t.Context(), tx, &b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWorkIsLeasedAsReserved covers the states that work can be in when it is requested again.
func TestWorkIsLeasedAsReserved(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	w := r.newWorker(t)
	r.registerProcess(t, w.heartbeat.ID)
	r.Attach(w)
	for name, tt := range map[string]struct {
		was          string // columns of the stored row; empty if there is none
		delay        time.Duration
		taken, again bool
		count        int
	}{
		"new":                     {taken: true, count: 1},
		"new, later":              {delay: time.Hour},
		"waits for its time":      {was: `ticket = 0, due_at = now() + interval '1 h'`, taken: true, count: 1},
		"has a ticket out":        {was: `ticket = 3`, taken: true, count: 1},
		"has a ticket out, later": {was: `ticket = 3`, delay: time.Hour},
		"under way":               {was: `lease = 'rh_' || run_id, holder = 'other', delivery_count = 1`, again: true, count: 1},
		"has failed":              {was: `last_error = 'x', delivery_count = 2`, count: 2},
		"is parked":               {was: `parked_at = now(), delivery_count = 9`, count: 9},
	} {
		t.Run(name, func(t *testing.T) {
			m := invocation()
			m.Delay = time.Hour
			if tt.was != "" {
				r.storeWork(t, m)
				r.Exec(t, `UPDATE messages SET `+tt.was+` WHERE run_id = $1`, m.RunID)
			}
			m.Delay = tt.delay
			s := r.storeWork(t, m)
			var again bool
			r.Scan(t, `SELECT redeliver FROM messages WHERE run_id = $1`, []any{m.RunID}, &again)
			if s.Taken != tt.taken || again != tt.again || s.DeliveryCount != tt.count {
				t.Errorf("got taken %v, again %v, delivery %d; want %v, %v, %d",
					s.Taken, again, s.DeliveryCount, tt.taken, tt.again, tt.count)
			}
			if !tt.taken {
				return
			}
			// The issued ticket is invalid, and the next request finds the work in progress.
			if _, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: s.ID, Number: 3}, "rh_late", w.heartbeat.ID, leaseTime); ok || err != nil {
				t.Errorf("claim with the earlier ticket: got %v, %v", ok, err)
			}
			if next := r.storeWork(t, m); next.Taken || next.Lease != s.Lease {
				t.Errorf("request while in progress: got %+v, want the lease %s unchanged", next, s.Lease)
			}
		})
	}
}

// TestUndeliveredReservationIsReleased: the process reserves a message, but then has no free slot or stops.
func TestUndeliveredReservationIsReleased(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	enqueued := func() (string, func(error)) {
		var id string
		var ended func(error)
		err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
			all, err := r.enqueueAll(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage()})
			if err == nil {
				id, ended = all.ids[0], all.ended
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.stored(t, id); s.Lease == "" {
			t.Fatalf("got %+v, want it leased", s)
		}
		return id, ended
	}
	slots := w.dispatcher.slots
	all := slots.Free()
	for name, trouble := range map[string]struct {
		cause func()
		err   error
	}{
		"no answer to the commit": {func() {}, errors.New("connection lost")},
		"no slot": {func() {
			testdb.Eventually(t, "all slots are taken", func() bool { return slots.Try("other", all, shareFactor) })
		}, nil},
	} {
		id, ended := enqueued()
		trouble.cause()
		ended(trouble.err)
		if c := a.next(t); c.id() != id || c.count() != "1" {
			t.Errorf("%s: got delivery %s of %s, want 1 of %s", name, c.count(), c.id(), id)
		} else {
			r.ack(t, c)
		}
		if slots.Free() == 0 {
			slots.Release("other", all)
		}
	}
	id, ended := enqueued()
	stop(t, w)
	ended(nil)
	testdb.Eventually(t, "it is released", func() bool { return r.stored(t, id).Lease == "" })
	if s := r.stored(t, id); s.DeliveryCount != 0 || s.Wait > 0 || s.LastError != "" {
		t.Errorf("got %+v, want it due as if for the first time", s)
	}
	r.worker(t)
	r.ack(t, a.next(t))
}

// TestCrashDuringReservedSendLosesNothing loses the connection at each statement: a message that was stored is
// delivered soon.
func TestCrashDuringReservedSendLosesNothing(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r := open(t, dsn)
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(t, c) })
	r.register(t, deployment, a.URL)
	w := r.worker(t)
	session := gate.Open(t, dsn, r.pool, nil)
	broken := on(t, session.Pool)
	broken.Attach(w)
	send := func(n int, how gate.Crash) (statements []string, id string, err error) {
		statements = session.Run(t, n, how, func() { id, err = broken.Send(context.Background(), newMessage()) })
		return statements, id, err
	}
	statements, id, err := send(-1, gate.None)
	if c := a.next(t); err != nil || c.id() != id {
		t.Fatalf("got message %s, %v", c.id(), err)
	}
	for n, sql := range statements {
		for _, how := range gate.Crashes(sql) {
			if _, _, err := send(n, how); err == nil {
				t.Errorf("%s at %d: no error", how, n)
			}
			if n == len(statements)-1 && how == gate.AnswerLost {
				if c := a.next(t); c.count() != "1" {
					t.Errorf("got delivery %s, want 1", c.count())
				}
			}
			testdb.Eventually(t, fmt.Sprintf("nothing is left after %s at %d", how, n), func() bool {
				return r.Count(t, `SELECT count(*) FROM messages`) == 0
			})
		}
	}
	if len(a.calls) > 0 {
		t.Errorf("got %d calls too many", len(a.calls))
	}
}
