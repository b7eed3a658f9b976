package queue

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// TestFunctionsKeepTheirCalls: what a function that says that it works has of its call, in each state of the server that
// made it. Unlike a lease, a call does not last longer by it while its server waits.
func TestFunctionsKeepTheirCalls(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	const run = entities.RunID("wrun_1")
	w := &deliverer{queue: r.Queue}
	keep := func(d Delivery) {
		t.Helper()
		if err := r.KeepCall(t.Context(), callOf(run, d.Lease)); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(d Delivery) {
		t.Helper()
		if err := w.leaveCall(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	isCall := func() { r.Exec(t, `UPDATE messages SET work = 'step', run_id = $1`, run) }
	r.wantKept(t, isCall, []keptCase{
		{"the server waits", func(d Delivery) {
			r.Exec(t, `UPDATE messages SET due_at = now() + interval '40 s'`)
			keep(d)
		}, 20 * time.Second, 40 * time.Second, "proc_1"},
		{"the server stops", func(d Delivery) { keep(d); leave(d) }, 1, minLeftLease, ""},
		{"the server has stopped", func(d Delivery) { keep(d); leave(d); keep(d) }, 1, cluster.KeptLease, ""},
		{"the server stops, and the function works no more", func(d Delivery) {
			keep(d)
			r.Exec(t, `UPDATE messages SET kept_until = now()`)
			leave(d)
		}, 0, 0, ""},
		{"the server stops, and nobody says anything", leave, 0, 0, ""},
		{"the server died", func(d Delivery) {
			keep(d)
			r.dies(t)
		}, 1, cluster.KeptLease, ""},
	})
	d := r.claimed(t, "proc_1")
	testdb.WantError(t, "no work", r.KeepCall(t.Context(), callOf(run, d.Lease)), message.ErrStale)
	isCall()
	testdb.WantError(t, "another lease", r.KeepCall(t.Context(), callOf(run, "rh_other")), message.ErrStale)
	testdb.WantError(t, "another project", r.KeepCall(t.Context(), token.Call{Project: "other", RunID: run, Invocation: d.Lease}), message.ErrStale)
	testdb.WantError(t, "another run", r.KeepCall(t.Context(), callOf("wrun_2", d.Lease)), message.ErrStale)
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	testdb.WantError(t, "it has ended", r.KeepCall(t.Context(), callOf(run, d.Lease)), message.ErrStale)
	if _, err := r.Called(t.Context(), callOf(run, d.Lease)); err == nil {
		t.Error("a call that has ended has a delivery")
	}
}
