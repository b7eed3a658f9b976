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
		if err := w.leaveCall(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name        string
		do          func(Delivery)
		least, most time.Duration // that the lease lasts; 0 if it has ended
		holder      string
	}{
		{"the server waits", func(d Delivery) {
			r.exec(t, `UPDATE messages SET due_at = now() + interval '40 s'`)
			keep(d)
		}, 20 * time.Second, 40 * time.Second, "proc_1"},
		{"the server stops", func(d Delivery) { keep(d); leave(d) }, 1, minLeftLease, ""},
		{"the server has stopped", func(d Delivery) { keep(d); leave(d); keep(d) }, 1, cluster.KeptLease, ""},
		{"the server stops, and the function works no more", func(d Delivery) {
			keep(d)
			r.exec(t, `UPDATE messages SET kept_until = now()`)
			leave(d)
		}, 0, 0, ""},
		{"the server stops, and nobody says anything", leave, 0, 0, ""},
		{"the server died", func(d Delivery) {
			keep(d)
			r.exec(t, `UPDATE processes SET beat_at = now() - interval '1 hour'`)
			if _, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_1"}, time.Second, time.Minute); err != nil {
				t.Fatal(err)
			}
		}, 1, cluster.KeptLease, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { // one after the other: they share a process
			d := r.claimed(t, "proc_1")
			r.exec(t, `UPDATE messages SET work = 'step', run_id = $1`, run)
			tt.do(d)
			got := r.stored(t, d.ID)
			left := got.Lease == d.Lease && got.Wait >= tt.least && got.Wait <= tt.most
			if tt.least == 0 && got.Lease != "" || tt.least > 0 && !left {
				t.Errorf("got %+v, want the lease for %s at most", got, tt.most)
			}
			var holder string
			r.scan(t, `SELECT holder FROM messages WHERE id = $1`, []any{d.ID}, &holder)
			if holder != tt.holder {
				t.Errorf("got holder %q, want %q", holder, tt.holder)
			}
			r.exec(t, `DELETE FROM messages`)
		})
	}
	d := r.claimed(t, "proc_1")
	wantError(t, "no work", r.KeepCall(t.Context(), callOf(run, d.Lease)), message.ErrStale)
	r.exec(t, `UPDATE messages SET work = 'step', run_id = $1`, run)
	wantError(t, "another lease", r.KeepCall(t.Context(), callOf(run, "rh_other")), message.ErrStale)
	wantError(t, "another project", r.KeepCall(t.Context(), token.Call{Project: "other", RunID: run, Invocation: d.Lease}), message.ErrStale)
	wantError(t, "another run", r.KeepCall(t.Context(), callOf("wrun_2", d.Lease)), message.ErrStale)
	r.exec(t, `UPDATE messages SET due_at = now()`)
	wantError(t, "it has ended", r.KeepCall(t.Context(), callOf(run, d.Lease)), message.ErrStale)
	if _, err := r.Called(t.Context(), callOf(run, d.Lease)); err == nil {
		t.Error("a call that has ended has a delivery")
	}
}
