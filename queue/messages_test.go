package queue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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
	r.exec(t, `
		UPDATE messages SET lease = '', parked_at = now(), delivery_count = 64, unreached_count = 3, ticket = 65,
			first_failed_at = now() - interval '1 d', last_error = 'indigestible' WHERE id = $1`, id)
}

// ids lists the IDs of a project's messages in a state, with two per page.
func (r *replica) ids(t testing.TB, p entities.Project, s State) []string {
	t.Helper()
	var ids []string
	page := pg.Page{Limit: 2}
	for {
		entries, next, err := r.Messages(t.Context(), p, Filter{State: s}, page)
		if err != nil || len(entries) > 2 {
			t.Fatalf("list: got %d and %v", len(entries), err)
		}
		for _, e := range entries {
			if s != "" && e.State != s {
				t.Errorf("got a message that is %s in the list of those %s", e.State, s)
			}
			ids = append(ids, e.ID)
		}
		if next == "" {
			return ids
		}
		page.Cursor = next
	}
}

func TestMessagesAreListedByState(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	want := map[State][]string{}
	for i := range 9 {
		id := r.send(t, delayed(time.Duration(i%2)*time.Hour))
		s := []State{StateWaiting, StateLeased, StateParked}[i%3]
		switch s {
		case StateLeased:
			r.exec(t, `UPDATE messages SET lease = id WHERE id = $1`, id)
		case StateParked:
			r.park(t, id)
		default:
		}
		want[s], want[""] = append(want[s], id), append(want[""], id)
	}
	foreign := r.send(t, func(m *message.Message) { m.Project = "other" })
	for s, ids := range want {
		if got := r.ids(t, project, s); !slices.Equal(got, ids) {
			t.Errorf("%q: got %v, want %v", s, got, ids)
		}
	}
	if got := r.ids(t, "other", ""); !slices.Equal(got, []string{foreign}) {
		t.Errorf("other project: got %v, want %v", got, foreign)
	}
	for _, bad := range []struct{ state, cursor string }{{"lost", ""}, {"parked", "a b"}} {
		_, _, err := r.Messages(t.Context(), project, Filter{State: State(bad.state)}, pg.Page{Limit: 1, Cursor: bad.cursor})
		wantError(t, fmt.Sprint(bad), err, entities.ErrInvalid)
	}
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
	if n := r.count(t, `SELECT count(*) FROM messages WHERE unreached_count = 0 AND first_failed_at IS NULL`); n != 1 {
		t.Error("its count of failures was not reset")
	}
	_, err = r.Retry(t.Context(), project, id)
	wantError(t, "retry of a leased message", err, entities.ErrConflict)
	r.ack(t, c)
	_, err = r.Retry(t.Context(), project, id)
	wantError(t, "retry of an acknowledged message", err, message.ErrMessageNotFound)
}

func TestRetryDoesNotShortenDelays(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	sleeping, failed := r.send(t, delayed(time.Hour)), r.send(t)
	_, err := r.Retry(t.Context(), project, sleeping)
	wantError(t, "a delayed message", err, entities.ErrConflict)
	if got := r.stored(t, sleeping); got.Wait < 50*time.Minute {
		t.Errorf("got %+v, want it due in an hour", got)
	}
	r.exec(t, `UPDATE messages SET last_error = 'x', due_at = now() + interval '15 min' WHERE id = $1`, failed)
	if _, err := r.Retry(t.Context(), project, failed); err != nil {
		t.Error(err)
	}
	if got := r.stored(t, failed); got.Wait > 0 {
		t.Errorf("got %+v, want it due", got)
	}
	_, err = r.Retry(t.Context(), "other", failed)
	wantError(t, "foreign project", err, message.ErrMessageNotFound)
}

func TestDiscardedMessageIsGone(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	parked, leased, sibling := r.send(t, keyed("k")), r.claimed(t, "proc_1"), r.send(t, keyed("sibling"))
	r.park(t, parked)
	wantError(t, "foreign project", r.Discard(t.Context(), "other", parked), message.ErrMessageNotFound)
	for _, id := range []string{parked, leased.ID} {
		if err := r.Discard(t.Context(), project, id); err != nil {
			t.Error(err)
		}
		wantError(t, "second", r.Discard(t.Context(), project, id), message.ErrMessageNotFound)
	}
	wantError(t, "its lease", r.Acknowledge(t.Context(), project, topic, leased.Lease), message.ErrLeaseNotFound)
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
	eventually(t, "all memory is free", func() bool {
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
	r.exec(t, `UPDATE messages SET lease = 'rh_' || id WHERE id IN ('msg_7', 'msg_19000')`)
	r.exec(t, `UPDATE messages SET parked_at = now() WHERE id = 'msg_8'`)
	r.exec(t, `VACUUM ANALYZE messages`)
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

func TestMessagesAreListedByRunAndBackwards(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	about := func(id entities.RunID) func(*message.Message) { return func(m *message.Message) { m.RunID = id } }
	first, other, last := r.send(t, about("wrun_1")), r.send(t, about("wrun_2")), r.send(t, about("wrun_1"))
	var got []string
	for p := (pg.Page{Limit: 1, Descending: true}); ; {
		entries, next, err := r.Messages(t.Context(), project, Filter{RunID: "wrun_1"}, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			got = append(got, e.ID)
		}
		if p.Cursor = next; next == "" {
			break
		}
	}
	if want := []string{last, first}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if e, err := r.Message(t.Context(), project, other); err != nil || e.ID != other || e.RunID != "wrun_2" {
		t.Errorf("got %+v and error %v", e, err)
	}
	_, err := r.Message(t.Context(), "other", other)
	wantError(t, "another project's", err, message.ErrMessageNotFound)
}
