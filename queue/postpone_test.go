package queue

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// TestPostponedMessageHasNotFailed: a function of a run with a fence asks for the same message again, however often, by
// setting when it is due and answering with success. A failure after that is the first one.
func TestPostponedMessageHasNotFailed(t *testing.T) {
	t.Parallel()
	const most = 99 // deliveries: more than park a message
	var r *replica
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, c call) {
		if c.count() == strconv.Itoa(most+2) {
			w.WriteHeader(http.StatusInternalServerError)
		} else if err := r.SetVisibility(context.Background(), project, topic, c.handle(), time.Minute); err != nil {
			t.Error(err)
		}
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t)
	r.ticketsOnly()
	id := r.send(t, of(r.run(t, entities.SpecFence)))
	for n, count := range []int{1, 2, most + 1, most + 2} {
		if c := a.next(t); c.count() != strconv.Itoa(count) || c.id() != id {
			t.Errorf("delivery %d has the count %s and the message %s", n, c.count(), c.id())
		}
		r.ticketsDone(t, id, n+1)
		var wait time.Duration
		if count == most+2 {
			r.Scan(t, `SELECT due_at - now() FROM messages WHERE id = $1 AND first_failed_at IS NOT NULL`, []any{id}, &wait)
			if wait > firstBackoff {
				t.Errorf("after a failure, the message is due in %s, want at most %s", wait, firstBackoff)
			}
			r.Exec(t, `UPDATE messages SET first_failed_at = now() - interval '1 year' WHERE id = $1`, id)
		} else {
			r.Scan(t, `SELECT due_at - now() FROM messages WHERE id = $1 AND lease = '' AND last_error = ''
				AND first_failed_at IS NULL`, []any{id}, &wait)
			if wait < time.Minute/2 || wait > time.Minute {
				t.Errorf("the message is due in %s, want a minute", wait)
			}
		}
		if count == 2 {
			r.Exec(t, `UPDATE messages SET delivery_count = $2 WHERE id = $1`, id, most)
		}
		r.makeDue(t, id)
	}
	if c := a.next(t); c.count() != strconv.Itoa(most+3) {
		t.Errorf("after a failure, the count is %s", c.count())
	}
}

// TestFenceHasTheExactCount: to the client of a run with a fence, the first delivery is one that nobody can have seen.
// For others, a delivery that was lost with its server does not count, and a manual retry begins again.
func TestFenceHasTheExactCount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version int // 0: the run does not exist
		exact   bool
	}{
		"without a fence": {version: entities.SpecTakeover},
		"with a fence":    {entities.SpecFence, true},
		"no run yet":      {exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			run := entities.NewRunID(time.Now())
			if tt.version > 0 {
				run = r.run(t, tt.version)
			}
			id := r.send(t, of(run))
			check := func(what string, lost, failures int) {
				t.Helper()
				if !tt.exact {
					lost = 0
				}
				var got []int
				r.Scan(t, `SELECT ARRAY[delivery_count, delivery_count - excused_count] FROM messages WHERE id = $1 AND lease = ''`,
					[]any{id}, &got)
				if want := []int{lost + failures, failures}; !slices.Equal(got, want) {
					t.Errorf("%s: got deliveries and failures %v, want %v", what, got, want)
				}
			}
			lease := func() {
				r.Exec(t, `UPDATE messages SET lease = id, holder = 'proc_1', delivery_count = delivery_count + 1 WHERE id = $1`, id)
			}
			lease()
			r.closeSession(t, r.silentProcess(t, "proc_1", time.Minute))
			got, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_1"}, cluster.SilenceLimit, cluster.FrozenLimit)
			if err != nil || got.Leases != 1 {
				t.Fatalf("got %+v, %v; want a lease taken over", got, err)
			}
			check("after a takeover", 1, 0)
			lease()
			if n, err := cluster.ReleaseOrphans(t.Context(), r.pool); err != nil || n != 1 {
				t.Fatalf("got %d, %v; want a lease released", n, err)
			}
			check("after a release", 2, 0)
			r.Exec(t, `UPDATE messages SET delivery_count = delivery_count + 64, parked_at = now() WHERE id = $1`, id)
			check("parked", 2, 64)
			if _, err := r.Retry(t.Context(), project, id); err != nil {
				t.Fatal(err)
			}
			check("after a manual retry", 1, 0)
		})
	}
}
