package engine

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// blocked returns why a run is blocked.
func (d *server) blocked(t *testing.T, id entities.RunID) (message.Blocked, bool) {
	t.Helper()
	all, err := d.Blocked(t.Context(), project, []entities.RunID{id, "wrun_other"})
	if err != nil {
		t.Fatal(err)
	}
	h, ok := all[id]
	return h, ok
}

// TestRefusedRunsAreBlocked: the run shows why, until its function goes on, which it is asked to as soon as it is
// registered again.
func TestRefusedRunsAreBlocked(t *testing.T) {
	t.Parallel()
	var fixed atomic.Bool
	f := serve(t, func(c *functionCall) {
		switch {
		case c.has("hook_received", "h"):
			c.reply(object{"type": "complete"})
		case fixed.Load():
			c.reply(object{"type": "openHook", "id": "h", "token": "T"})
		default:
			c.w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(c.w, `{"error":{"message":"order.go:41: \u0000no charge","code":"diverged"}}`)
		}
	})
	d := startServer(t, f)
	started := time.Now()
	id := d.startRun(t, `null`)
	var h message.Blocked
	testdb.Eventually(t, "the run has been tried again", func() bool {
		h, _ = d.blocked(t, id)
		return h.Attempts > 1
	})
	if h.Code != "diverged" || h.Message != "order.go:41: \uFFFDno charge" || h.Since.Before(started) {
		t.Errorf("got blocked %+v", h)
	}
	if other, err := d.Blocked(t.Context(), "other", []entities.RunID{id}); err != nil || len(other) > 0 {
		t.Errorf("another project sees %+v, error %v", other, err)
	}
	g, err := d.Gauges(t.Context())
	if want := "map[diverged:1 encode:0 other:0 panic:0 server_panic:0]"; err != nil || fmt.Sprint(g.BlockedRuns) != want {
		t.Errorf("got gauges %v, error %v, want %s", g.BlockedRuns, err, want)
	}
	fixed.Store(true)
	d.Exec(t, `UPDATE messages SET due_at = now() + interval '1 h' WHERE lease = ''`)
	d.register(t, deployment, f.URL)
	d.waitForEvent(t, id, "hook_created h")
	if h, ok := d.blocked(t, id); ok {
		t.Errorf("the run goes on, but is blocked: %+v", h)
	}
	d.resume(t, id, "h", `1`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
}

// TestOnlyCodesHoldRuns fails a run's invocation in several ways, after it has diverged.
func TestOnlyCodesHoldRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  func(*server, queue.Delivery) error
		want string
	}{
		"another code": {func(d *server, w queue.Delivery) error {
			return d.runs.refused(w, answer{status: 500, body: []byte(`{"error":{"message":"m","code":"panic"}}`)})
		}, "panic"},
		"without a code": {func(d *server, w queue.Delivery) error {
			return d.runs.refused(w, answer{status: 500, body: []byte(`{"error":{"message":"m"}}`)})
		}, ""},
		"code with a line break": {func(d *server, w queue.Delivery) error {
			return d.runs.refused(w, answer{status: 500, body: []byte(`{"error":{"message":"m","code":"a\nb"}}`)})
		}, ""},
		"not reached": {func(_ *server, w queue.Delivery) error { return w.Unregistered() }, "diverged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idleServer(t, testdb.New(t))
			id := d.startRun(t, `null`)
			diverge := func(d *server, w queue.Delivery) error {
				return d.runs.refused(w, answer{status: 500, body: []byte(`{"error":{"message":"m","code":"diverged"}}`)})
			}
			for _, fail := range []func(*server, queue.Delivery) error{diverge, tt.err} {
				work := d.claim(t, message.WorkRun, "")
				d.runs.nack(t, work, fail(d, work))
			}
			if h, ok := d.blocked(t, id); h.Code != tt.want || ok != (tt.want != "") {
				t.Errorf("got blocked %+v, want code %q", h, tt.want)
			}
		})
	}
}

// nack releases work after a failure.
func (e *Engine) nack(t *testing.T, work queue.Delivery, err error) {
	t.Helper()
	var b pgx.Batch
	work.NackIn(&b, work.Failure(err))
	if err := e.pool.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDivergedRunsAreCalledEveryMinute, and are never parked.
func TestDivergedRunsAreCalledEveryMinute(t *testing.T) {
	t.Parallel()
	for code, limited := range map[string]bool{"diverged": true, "panic": false} {
		d := idleServer(t, testdb.New(t))
		d.startRun(t, `null`)
		d.Exec(t, `UPDATE messages SET delivery_count = 1000, first_failed_at = now() - interval '1 day'`)
		work := d.claim(t, message.WorkRun, "")
		body := fmt.Sprintf(`{"error":{"message":"m","code":%q}}`, code)
		err := d.runs.refused(work, answer{status: 500, retryAfter: time.Hour, body: []byte(body)})
		if f := work.Failure(err); f.After > time.Minute == limited || f.After < 30*time.Second {
			t.Errorf("%s: it is called again after %s", code, f.After)
		}
		d.runs.nack(t, work, err)
		d.Exec(t, `UPDATE messages SET due_at = now()`)
		d.worker(t, d.works)
		testdb.Eventually(t, "the message has been looked at", func() bool {
			return d.Count(t, `SELECT count(*) FROM messages WHERE parked_at IS NOT NULL OR last_error LIKE '%not registered%'`) == 1
		})
		if parked := d.Count(t, `SELECT count(*) FROM messages WHERE parked_at IS NOT NULL`); parked > 0 == limited {
			t.Errorf("%s: %d messages are parked", code, parked)
		}
	}
}
