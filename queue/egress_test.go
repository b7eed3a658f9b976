package queue

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// publicOnly configures a worker as by default: it calls public addresses only.
func publicOnly(o *WorkerOptions) { o.Allowed = egress.Allowed{} }

// TestForbiddenAddressesAreNotCalled: a message for a forbidden address records the reason, counts no delivery, and is
// delivered once a worker allows the address.
func TestForbiddenAddressesAreNotCalled(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := open(t, testdb.New(t))
	logged := &testdb.Log{}
	careful := r.worker(t, publicOnly, func(o *WorkerOptions) {
		o.MaxDeliveries, o.FailureWindow, o.Logger = 1, 0, slog.New(slog.NewTextHandler(logged, nil))
	})
	r.register(t, deployment, strings.Replace(a.URL, "127.0.0.1", "localhost", 1))
	id := r.send(t)
	const reason = "localhost has no address that the server calls"
	for range 3 {
		var got stored
		testdb.Eventually(t, "the delivery is refused", func() bool {
			got = r.stored(t, id)
			return got.LastError != "" && got.Lease == ""
		})
		if !strings.Contains(got.LastError, reason) || !strings.Contains(got.LastError, egress.Variable) ||
			got.DeliveryCount != 0 || got.Parked {
			t.Errorf("got %+v", got)
		}
		r.Exec(t, `UPDATE messages SET last_error = '' WHERE id = $1`, id)
		r.makeDue(t, id)
	}
	if !logged.Contains(reason) {
		t.Error("the log does not say why")
	}
	stop(t, careful)
	if len(a.calls) != 0 {
		t.Errorf("got %d calls", len(a.calls))
	}
	r.worker(t)
	r.makeDue(t, id)
	if got := a.next(t); got.id() != id || got.count() != "1" {
		t.Errorf("got %s, delivery %s", got.id(), got.count())
	}
}
