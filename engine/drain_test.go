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
	return &replica{pool: r.pool, hub: hub, Queue: q}
}

func (r *replica) drainer(t *testing.T, configure ...func(*queue.WorkerOptions)) *queue.Drainer {
	t.Helper()
	o := queue.WorkerOptions{
		Deliveries: 100, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: testTimeout, Logger: slog.New(slog.DiscardHandler),
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
	return drainFor(t, d, testTimeout, 0)
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

// drainAndCut drains until it cuts off a call. On a busy machine a budget may end before anything is called. What was
// taken by then is left to a later drain, which has more time.
func drainAndCut(t *testing.T, d *queue.Drainer) (got queue.Drained) {
	t.Helper()
	budget := 500 * time.Millisecond
	eventually(t, "a drain has called", func() bool {
		got = drainFor(t, d, budget, 0)
		budget = min(2*budget, 10*time.Second)
		return got.Delivered > 0
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
	d := r.drainer(t, func(o *queue.WorkerOptions) { o.Handlers, o.Grace = dr.runs.Handlers(), 10*time.Millisecond })
	eventually(t, "both attempts ended", func() bool { // at most one per drain
		drainAndCut(t, d)
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
	d := r.drainer(t, func(o *queue.WorkerOptions) { o.Handlers, o.Grace = dr.runs.Handlers(), 10*time.Millisecond })
	if got := drainAndCut(t, d); got.Delivered != 1 || got.Failed != 1 {
		t.Errorf("got %+v, want one delivery, which failed", got)
	}
	var id string
	r.scan(t, `SELECT id FROM messages`, nil, &id)
	if s := r.stored(t, id); s.DeliveryCount != 1 || !strings.Contains(s.LastError, "budget") || s.Lease != "" {
		t.Errorf("got %+v, want one failure that names the budget", s)
	}
}
