package engine

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// functionModeReplica opens a replica without background work: its hub is local and does not run.
func functionModeReplica(t *testing.T, dsn string) *replica {
	t.Helper()
	r := idleReplica(t, dsn)
	hub := pg.NewLocalHub()
	q, err := queue.New(r.pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{pool: r.pool, hub: hub, Rows: testdb.In(r.pool), Queue: q}
}

func (r *replica) drainer(t *testing.T, configure ...func(*queue.WorkerOptions)) *queue.Drainer {
	t.Helper()
	o := queue.WorkerOptions{
		Deliveries: 100, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: testdb.Timeout, Logger: slog.New(slog.DiscardHandler),
		Allowed: loopback(t),
	}
	for _, c := range configure {
		c(&o)
	}
	d := r.NewDrainer(o)
	t.Cleanup(d.Stop)
	return d
}

// drain drains until nothing is due.
func drain(t *testing.T, d *queue.Drainer) queue.Drained {
	t.Helper()
	return drainFor(t, d, testdb.Timeout, 0)
}

func drainFor(t *testing.T, d *queue.Drainer, budget, linger time.Duration) queue.Drained {
	t.Helper()
	session, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, err := session.Run(t.Context(), budget, linger)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// cutOff is the grace after which drains cut calls off. What a drain takes as it ends must be used within that time, or
// it waits for 30 s.
const cutOff = 2 * time.Second

// drainUntil drains, with more and more time, until ok: on a busy machine, a drain may end before it calls anything.
func drainUntil(t *testing.T, what string, d *queue.Drainer, ok func(queue.Drained) bool) (got queue.Drained) {
	t.Helper()
	budget := 500 * time.Millisecond
	testdb.Eventually(t, what, func() bool {
		got = drainFor(t, d, budget, 0)
		budget = min(2*budget, 10*time.Second)
		return ok(got)
	})
	return got
}

// TestStepsThatOutlastDrainsFail: an attempt cut off by the drain's budget counts, or the step would be called forever.
func TestStepsThatOutlastDrainsFail(t *testing.T) {
	t.Parallel()
	r := functionModeReplica(t, testdb.New(t))
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	dr := &server{r, log, New(r.Queue, log)}
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			<-c.r.Context().Done()
		case c.has("step_failed", "long"):
			c.reply(map[string]any{"type": "complete"})
		default:
			c.reply(map[string]any{
				"type": "runStep", "id": "long", "retry": map[string]any{"maxAttempts": 2, "backoff": "1ms"},
			})
		}
	})
	r.register(t, deployment, f.URL)
	id := dr.startRun(t, `null`)
	d := r.drainer(t, func(o *queue.WorkerOptions) { o.Handlers, o.Grace = dr.runs.Handlers(), cutOff })
	drainUntil(t, "both attempts ended", d, func(queue.Drained) bool { // at most one per drain
		return slices.Contains(dr.events(t, id), "step_failed long")
	})
	drain(t, d)
	want := []string{
		"run_created", "run_started", "step_created long", "step_started long", "step_retrying long", "step_started long",
		"step_failed long", "run_completed",
	}
	if diff := cmp.Diff(want, dr.events(t, id)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	if text := dr.describe(t, id); !strings.Contains(text, "budget") {
		t.Errorf("the log does not name the budget as the reason:\n%s", text)
	}
}

// TestInvocationsThatOutlastDrainsFail: they count as failed deliveries.
func TestInvocationsThatOutlastDrainsFail(t *testing.T) {
	t.Parallel()
	r := functionModeReplica(t, testdb.New(t))
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	dr := &server{r, log, New(r.Queue, log)}
	f := serve(t, func(c *functionCall) { <-c.r.Context().Done() })
	r.register(t, deployment, f.URL)
	dr.startRun(t, `null`)
	d := r.drainer(t, func(o *queue.WorkerOptions) { o.Handlers, o.Grace = dr.runs.Handlers(), cutOff })
	got := drainUntil(t, "a call failed", d, func(got queue.Drained) bool { return got.Failed > 0 })
	if got.Delivered != 1 || got.Failed != 1 {
		t.Errorf("got %+v, want one delivery, which failed", got)
	}
	var id string
	r.Scan(t, `SELECT id FROM messages`, nil, &id)
	if s := r.stored(t, id); s.DeliveryCount != 1 || !strings.Contains(s.LastError, "budget") || s.Lease != "" {
		t.Errorf("got %+v, want one failure that names the budget", s)
	}
}
