package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const riverChannel = "stepwell.river_insert"

// listen returns a function that waits for the next notification on River's channel.
func listen(t *testing.T, r *replica) func() string {
	t.Helper()
	conn, err := r.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := conn.Hijack()
	t.Cleanup(func() { _ = own.Close(context.Background()) })
	if _, err := own.Exec(t.Context(), `LISTEN "`+riverChannel+`"`); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testdb.Timeout)
		defer cancel()
		n, err := own.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("wait for a notification: %v", err)
		}
		return n.Payload
	}
}

// fence notifies River's channel: earlier notifications arrive before this one.
func fence(t *testing.T, r *replica) {
	t.Helper()
	r.Exec(t, `SELECT pg_notify($1, 'fence')`, riverChannel)
}

// wantNoHint fails the test if the hub sends a hint that it was given before. The first fence may overtake a concurrent
// hint, the second cannot.
func wantNoHint(t *testing.T, r *replica, heard func() string) {
	t.Helper()
	for _, want := range []string{"fence 1", "fence 2"} {
		r.hub.Send(pg.Hint{Channel: riverChannel, Topic: want})
		if got := heard(); got != want {
			t.Errorf("got the hint %q, want none", got)
		}
	}
}

func TestTransactionsDoNotNotify(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	heard := listen(t, r)
	r.send(t)
	enqueue(t, r, nil)(nil)
	fence(t, r)
	if got := heard(); got != "fence" {
		t.Errorf("the transactions notified %q, want nothing", got)
	}
}

// enqueue stores two messages in a transaction that ends with err.
func enqueue(t *testing.T, r *replica, err error) (committed func(error)) {
	t.Helper()
	got := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		var failure error
		_, committed, failure = r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage(), newMessage()})
		return errors.Join(failure, err)
	})
	if !errors.Is(got, err) {
		t.Fatalf("enqueue: got error %v, want %v", got, err)
	}
	return committed
}

func TestTicketsAreHintedOnceIssued(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t)) // its hub runs
	heard := listen(t, r)
	enqueue(t, r, nil)(nil)
	wantNoHint(t, r, heard)
	r.issue(t)
	const want = `{"queue": "deliveries"}`
	if got := heard(); got != want {
		t.Errorf("got the hint %q of a ticket, want %q", got, want)
	}
}

func TestFailedTransactionsGiveNoHint(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	heard := listen(t, r)
	enqueue(t, r, errors.New("boom"))
	wantNoHint(t, r, heard)
}

func TestDueMessagesAreHintedAfterTheCommit(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t)) // hints of its own process need no hub that runs
	due, cancel := r.hub.Subscribe(dueTopic)
	defer cancel()
	failed := errors.New("boom")
	enqueue(t, r, failed)(failed)
	committed := enqueue(t, r, nil)
	if len(due) > 0 {
		t.Error("got a hint after a rollback, or before the commit")
	}
	committed(nil)
	if len(due) == 0 {
		t.Error("got no hint after the commit")
	}
}

func TestWorkersFindWorkWithoutHints(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	a := newApp(t, nil)
	r := withoutHints(t, dsn)
	r.register(t, deployment, a.URL)
	r.worker(t)
	id := r.send(t)
	first := a.next(t)
	if err := r.SetVisibility(t.Context(), project, topic, first.handle(), 0); err != nil {
		t.Fatal(err)
	}
	second := a.next(t)
	if first.id() != id || second.id() != id || second.count() != "2" {
		t.Errorf("got %s and delivery %s of %s, want both of %s", first.id(), second.count(), second.id(), id)
	}
	r.ack(t, second)
}

// TestHeartbeatsFindDueMessages: a worker with nothing to do does not search for messages whose hints it missed. Its
// heartbeats do, and it does if they fail.
func TestHeartbeatsFindDueMessages(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]string{
		"heartbeats": ``, "failing heartbeats": `ALTER TABLE processes RENAME COLUMN host TO computer`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			a := newApp(t, nil)
			worker, sender := withoutHints(t, dsn), withoutHints(t, dsn)
			worker.register(t, deployment, a.URL)
			worker.worker(t)
			if alter != "" {
				worker.Exec(t, alter)
			}
			for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
				id := sender.send(t, delayed(delay))
				c := a.next(t)
				if c.id() != id {
					t.Errorf("got a delivery of %s, want %s", c.id(), id)
				}
				worker.ack(t, c)
			}
		})
	}
}
