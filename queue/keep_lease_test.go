package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// keptCase is what a function that says that it works has of a delivery, after something was done.
type keptCase struct {
	name        string
	do          func(Delivery)
	least, most time.Duration // that the lease lasts; 0 if it has ended
	holder      string
}

// wantKept checks the cases, each with a delivery of its own by the process proc_1, which is prepared first.
func (r *replica) wantKept(t *testing.T, prepare func(), cases []keptCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) { // one after the other: they share a process
			d := r.claimed(t, "proc_1")
			prepare()
			tt.do(d)
			got := r.stored(t, d.ID)
			if tt.least == 0 && (got.Lease != "" || got.DeliveryCount != 0) {
				t.Errorf("got %+v, want no lease, and no delivery", got)
			}
			if tt.least > 0 && (got.Lease != d.Lease || got.DeliveryCount != 1 || got.Wait < tt.least || got.Wait > tt.most) {
				t.Errorf("got %+v, want the lease of delivery 1 for %s at most", got, tt.most)
			}
			var holder string
			r.Scan(t, `SELECT holder FROM messages WHERE id = $1`, []any{d.ID}, &holder)
			if holder != tt.holder {
				t.Errorf("got holder %q, want %q", holder, tt.holder)
			}
			r.Exec(t, `DELETE FROM messages`)
		})
	}
}

// dies has the process proc_1 die, whose last beat was an hour ago, and another one take over.
func (r *replica) dies(t *testing.T) {
	t.Helper()
	r.Exec(t, `UPDATE processes SET beat_at = now() - interval '1 hour'`)
	if _, err := cluster.TakeOver(t.Context(), r.pool, []string{"proc_1"}, time.Second, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// TestFunctionsThatWorkKeepTheirLeases: what a function that says that it works has of its message, in each state of the
// server that called it.
func TestFunctionsThatWorkKeepTheirLeases(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	keep := func(d Delivery) {
		t.Helper()
		if err := r.KeepLease(t.Context(), project, topic, d.Lease); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(d Delivery) {
		t.Helper()
		if err := leaveLease(t.Context(), r.pool, d.Lease, d.ClaimedAt); err != nil {
			t.Fatal(err)
		}
	}
	r.wantKept(t, func() {}, []keptCase{
		{"the server works", keep, leaseTime - 5*time.Second, leaseTime, "proc_1"},
		{"the server's lease ends", func(d Delivery) {
			r.Exec(t, `UPDATE messages SET due_at = now() + interval '1 min' WHERE id = $1`, d.ID)
			keep(d)
		}, leaseTime - 5*time.Second, leaseTime, "proc_1"},
		{"the server stopped", func(d Delivery) { leave(d); keep(d) }, 1, cluster.KeptLease, ""},
		{"the server stops", func(d Delivery) {
			r.Exec(t, `UPDATE messages SET due_at = now() + interval '4 min' WHERE id = $1`, d.ID)
			keep(d)
			leave(d)
		}, 1, minLeftLease, ""},
		{"the server died while it worked", func(d Delivery) {
			keep(d)
			r.Exec(t, `UPDATE messages SET kept_until = now() - interval '59 min'`) // after the last beat
			r.dies(t)
		}, 1, cluster.KeptLease, ""},
		{"it did not work when the server died", func(d Delivery) {
			keep(d)
			r.Exec(t, `UPDATE messages SET kept_until = now() - interval '61 min'`)
			r.dies(t)
		}, 0, 0, ""},
		{"it never said so", func(Delivery) { r.dies(t) }, 0, 0, ""},
		{"the server's row is gone", func(d Delivery) {
			keep(d)
			r.Exec(t, `DELETE FROM processes`)
			if _, err := cluster.ReleaseOrphans(t.Context(), r.pool); err != nil {
				t.Fatal(err)
			}
		}, 1, cluster.KeptLease, ""},
	})
}

// TestALostLeaseIsNotKept: only the current handle of a message keeps its lease.
func TestALostLeaseIsNotKept(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	d := r.claimed(t, "proc_1")
	for _, handle := range []string{"", "rh_other"} {
		if err := r.KeepLease(t.Context(), project, topic, handle); !errors.Is(err, message.ErrLeaseNotFound) {
			t.Errorf("handle %q: got %v, want %v", handle, err, message.ErrLeaseNotFound)
		}
	}
	testdb.WantError(t, "another project", r.KeepLease(t.Context(), "other", topic, d.Lease), message.ErrLeaseNotFound)
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	testdb.WantError(t, "it has ended", r.KeepLease(t.Context(), project, topic, d.Lease), message.ErrLeaseNotFound)
}
