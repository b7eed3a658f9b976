package queue

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// withoutMemory starts a worker whose memory for bodies is all taken until giveBack is called.
func (r *replica) withoutMemory(t *testing.T) (giveBack func()) {
	t.Helper()
	w := r.newWorker(t, func(o *WorkerOptions) { o.BodyMemory = 1 << 20 })
	w.keepPause = 10 * time.Millisecond
	giveBack, err := w.memory.take(t.Context(), project, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(giveBack)
	startWorker(t, w)
	return giveBack
}

// waits sends a message that is too large for the free memory, and waits until its delivery waits.
func (r *replica) waits(t *testing.T) string {
	t.Helper()
	id := r.send(t, body(strings.Repeat("x", 1<<20)))
	testdb.Eventually(t, "the ticket is fetched", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'running'`) == 1
	})
	return id
}

// TestTicketThatWaitsForMemoryIsNotLost: otherwise its message would get more and more tickets, until all deliveries
// wait for the same message.
func TestTicketThatWaitsForMemoryIsNotLost(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(t, c) })
	r.register(t, deployment, a.URL)
	giveBack := r.withoutMemory(t)
	id := r.waits(t)
	for range 3 { // its ticket would count as lost
		r.Exec(t, `UPDATE messages SET due_at = now() + interval '2 s' WHERE id = $1`, id)
		testdb.Eventually(t, "its ticket is kept", func() bool { return r.stored(t, id).Wait > ticketTime/2 })
	}
	r.Want(t, "tickets of one message", 1, `SELECT count(*) FROM river_job`)
	giveBack()
	r.gone(t, id)
	if c := a.next(t); c.id() != id || c.count() != "1" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
}

// TestWaitForMemoryEndsWithItsTicket: the message was deleted, or leased by a client that asked for it.
func TestWaitForMemoryEndsWithItsTicket(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	r.withoutMemory(t)
	for what, do := range map[string]func(id string){
		"discarded": func(id string) {
			if err := r.Discard(t.Context(), project, id); err != nil {
				t.Error(err)
			}
		},
		"received": func(id string) {
			if _, err := r.Receive(t.Context(), project, topic, id, time.Hour); err != nil {
				t.Error(err)
			}
		},
	} {
		do(r.waits(t))
		testdb.Eventually(t, "nobody waits for what was "+what, func() bool {
			return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'running'`) == 0
		})
	}
}
