package queue

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// park parks a message, as too many failures would.
func (r *replica) park(t testing.TB, id string) {
	t.Helper()
	r.Exec(t, `
		UPDATE messages SET lease = '', parked_at = now(), delivery_count = 64, unreached_count = 3, ticket = 65,
			first_failed_at = now() - interval '1 d', last_error = 'indigestible' WHERE id = $1`, id)
}

func TestParkedMessageCanBeRetried(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t, body("again"))
	a.next(t)
	r.park(t, id)
	e, err := r.Retry(t.Context(), project, id)
	if err != nil || e.State != StateWaiting || e.ParkedAt != nil || e.DeliveryCount != 0 {
		t.Errorf("got %+v, %v; want it waiting", e, err)
	}
	c := a.next(t)
	if c.id() != id || c.count() != "1" || string(c.Body) != "again" {
		t.Errorf("got delivery %s of %s, want 1 of %s", c.count(), c.id(), id)
	}
	r.Want(t, "messages without failures", 1, `SELECT count(*) FROM messages WHERE unreached_count = 0 AND first_failed_at IS NULL`)
	_, err = r.Retry(t.Context(), project, id)
	testdb.WantError(t, "retry of a leased message", err, entities.ErrConflict)
	r.ack(t, c)
	_, err = r.Retry(t.Context(), project, id)
	testdb.WantError(t, "retry of an acknowledged message", err, message.ErrMessageNotFound)
}

func TestRetryDoesNotShortenDelays(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	sleeping, failed := r.send(t, delayed(time.Hour)), r.send(t)
	_, err := r.Retry(t.Context(), project, sleeping)
	testdb.WantError(t, "a delayed message", err, entities.ErrConflict)
	if got := r.stored(t, sleeping); got.Wait < 50*time.Minute {
		t.Errorf("got %+v, want it due in an hour", got)
	}
	r.Exec(t, `UPDATE messages SET last_error = 'x', due_at = now() + interval '15 min' WHERE id = $1`, failed)
	if _, err := r.Retry(t.Context(), project, failed); err != nil {
		t.Error(err)
	}
	if got := r.stored(t, failed); got.Wait > 0 {
		t.Errorf("got %+v, want it due", got)
	}
	_, err = r.Retry(t.Context(), "other", failed)
	testdb.WantError(t, "foreign project", err, message.ErrMessageNotFound)
}

func TestDiscardedMessageIsGone(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	parked, leased, sibling := r.send(t, keyed("k")), r.claimed(t, "proc_1"), r.send(t, keyed("sibling"))
	r.park(t, parked)
	testdb.WantError(t, "foreign project", r.Discard(t.Context(), "other", parked), message.ErrMessageNotFound)
	for _, id := range []string{parked, leased.ID} {
		if err := r.Discard(t.Context(), project, id); err != nil {
			t.Error(err)
		}
		testdb.WantError(t, "second", r.Discard(t.Context(), project, id), message.ErrMessageNotFound)
	}
	testdb.WantError(t, "its lease", r.Acknowledge(t.Context(), project, topic, leased.Lease), message.ErrLeaseNotFound)
	if again := r.send(t, keyed("k")); again == parked {
		t.Error("its key is still in use, so it cannot be sent again")
	}
	if again := r.send(t, keyed("sibling")); again != sibling {
		t.Errorf("got %s for its sibling's key, want %s", again, sibling)
	}
}

func TestRacersRetryOnce(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t)
	a.next(t)
	r.park(t, id)
	race(16, func(int) bool {
		_, err := r.Retry(context.Background(), project, id)
		return err == nil
	})
	c := a.next(t)
	if c.count() != "1" {
		t.Errorf("got delivery %s, want 1", c.count())
	}
	r.fence(t, a, 0)
	r.ack(t, c)
}

// TestLargeBodiesAreDeliveredOneAtATime: the memory for bodies is limited, and is free again as soon as a body is sent,
// however long its function takes.
func TestLargeBodiesAreDeliveredOneAtATime(t *testing.T) {
	t.Parallel()
	const size, count = 100 << 10, 20
	release := make(chan struct{})
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, _ call) { <-release })
	let := sync.OnceFunc(func() { close(release) })
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	w := r.newWorker(t, func(o *WorkerOptions) { o.BodyMemory = size + 1 }) // one at a time
	startWorker(t, w)
	t.Cleanup(let)
	for i := range count {
		r.send(t, body(strings.Repeat(string(rune('a'+i)), size)))
	}
	r.send(t, body(strings.Repeat("z", 3*size))) // more than the limit
	seen := map[byte]int{}
	for range count + 1 {
		c := a.next(t)
		seen[c.Body[0]] += len(c.Body)
		if strings.Trim(string(c.Body), string(c.Body[0])) != "" {
			t.Error("a body was changed")
		}
	}
	for i := range count {
		if seen[byte('a'+i)] != size {
			t.Errorf("got %d bytes of body %d, want %d", seen[byte('a'+i)], i, size)
		}
	}
	if seen['z'] != 3*size {
		t.Errorf("got %d bytes of the largest body, want %d", seen['z'], 3*size)
	}
	let()
	testdb.Eventually(t, "all memory is free", func() bool {
		free, ok := w.memory.try(project, w.memory.Most(shareFactor))
		if ok {
			free()
		}
		return ok
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := memory{share.NewPool(10 * smallBody)}
	first, err := m.take(t.Context(), project, 8*smallBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.try(project, smallBody); !ok {
		t.Error("a small body waits")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.take(over, project, 3*smallBody); err == nil {
		t.Error("got more than there is")
	}
	first()
	first() // a second call releases nothing
	if _, err := m.take(t.Context(), project, 3*smallBody); err != nil {
		t.Errorf("after the first was sent: %v", err)
	}
	if _, ok := m.try(project, 8*smallBody); ok {
		t.Error("got more than there is after a second release")
	}
}

// TestFilteredListsReadFewRows: listing leased or parked messages does not read all waiting ones.
func TestFilteredListsReadFewRows(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.unreached(t, 20_000)
	r.Exec(t, `UPDATE messages SET lease = 'rh_' || id WHERE id IN ('msg_7', 'msg_19000')`)
	r.Exec(t, `UPDATE messages SET parked_at = now() WHERE id = 'msg_8'`)
	r.Exec(t, `VACUUM ANALYZE messages`)
	for _, state := range []State{StateLeased, StateParked} {
		sql, args, err := selections[state].listSQL(project, Filter{}, pg.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		plan := r.explain(t, sql, args...)
		if got := blocks(t, plan); got > 20 {
			t.Errorf("%s: read %d blocks, want 20 at most:\n%s", state, got, plan)
		}
	}
}
