package queue

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestCutConnectionsLoseNothing cuts all connections of a worker again and again while it delivers. No message has to
// wait until its lease expires.
func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	const messages = 300
	dsn := testdb.New(t)
	steady := open(t, dsn)
	r := open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "victim" })
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if rand.N(3) == 0 {
			w.WriteHeader(http.StatusInternalServerError) // the worker must store the failure
			return
		}
		// The steady replica is not cut. If the lease is gone, it was taken over, and the message comes again.
		if err := steady.Acknowledge(context.Background(), project, c.topic(), c.handle()); err != nil &&
			!errors.Is(err, message.ErrLeaseNotFound) {
			t.Errorf("acknowledge: %v", err)
		}
	})
	steady.register(t, deployment, a.URL)
	for range messages {
		steady.send(t)
	}
	r.worker(t, func(o *WorkerOptions) { o.Deliveries = 20 })
	deadline := time.After(testdb.Timeout)
	for cut := 0; ; {
		if left := steady.Count(t, `SELECT count(*) FROM messages`); left == 0 {
			if cut == 0 {
				t.Error("nothing was cut")
			}
			return
		}
		// Skip the backoffs.
		steady.Exec(t, `
			UPDATE messages SET due_at = now() WHERE id IN (
				SELECT id FROM messages WHERE lease = '' AND last_error <> '' FOR UPDATE SKIP LOCKED)`)
		if cut < 12 {
			var n int
			steady.Scan(t, `
				SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'victim'`, nil, &n)
			if n > 0 {
				cut++
			}
		}
		select {
		case <-deadline:
			t.Fatalf("%d messages are left; leased: %d", steady.Count(t, `SELECT count(*) FROM messages`),
				steady.Count(t, `SELECT count(*) FROM messages WHERE lease <> ''`))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lossyConn is a connection that loses the response to the first claim that it sends.
type lossyConn struct {
	net.Conn

	first *atomic.Bool // no claim has been sent yet
	cut   bool
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("rh_")) && c.first.CompareAndSwap(true, false) {
		c.cut = true
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut && err == nil {
		_ = c.Close()
		return 0, net.ErrClosed // the answer was there, so the claim was committed
	}
	return n, err
}

// TestClaimWithALostAnswerIsReleased: only the worker that lost the response knows the lease.
func TestClaimWithALostAnswerIsReleased(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	first.Store(true)
	r := open(t, testdb.New(t), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &lossyConn{Conn: conn, first: &first}, err
		}
	})
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	r.worker(t)
	r.ticketsOnly()
	id := r.send(t)
	c := a.next(t) // long before the first claim's lease expires
	if first.Load() {
		t.Error("no answer was lost")
	}
	if c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	var ticket int
	r.Scan(t, `SELECT ticket FROM messages WHERE id = $1`, []any{id}, &ticket)
	if ticket != firstTicket+2 {
		t.Errorf("got ticket number %d, want that of two claims", ticket)
	}
	r.ack(t, c)
}
