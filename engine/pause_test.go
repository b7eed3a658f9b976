package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// ordersAndWaits is a workflow of a step, a child, a wait and a hook, which have all to end.
func ordersAndWaits(c *functionCall) {
	switch {
	case c.Type == contract.TypeStep:
		_, _ = fmt.Fprint(c.w, `"charged"`)
	case c.Run.Workflow == "child":
		c.reply(object{"type": "complete"})
	case c.has("step_completed", "charge") && c.has("step_completed", "kid") && c.has("wait_completed", "nap") &&
		c.has("hook_received", "h"):
		c.reply(object{"type": "complete", "output": "done"})
	default:
		c.reply(
			object{"type": "runStep", "id": "charge"}, object{"type": "startChild", "id": "kid", "workflow": "child"},
			object{"type": "wait", "id": "nap", "for": "50ms"}, object{"type": "openHook", "id": "h", "token": string(c.Run.ID)},
		)
	}
}

// TestNothingIsLostInAPause: runs are started, resumed from outside, and over their waits while they, their workflow or
// their deployment are paused, before their first call or within. Nothing calls them; afterwards they go on to their end.
func TestNothingIsLostInAPause(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		for _, kind := range []hold.Kind{hold.Run, hold.Workflow, hold.Deployment} {
			t.Run(fmt.Sprint(kind, ", begun ", begun), func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int64
				f := serve(t, func(c *functionCall) {
					calls.Add(1)
					ordersAndWaits(c)
				})
				dsn := testdb.New(t)
				d := newServer(t, dsn)
				d.register(t, deployment, f.URL)
				id := d.startRun(t, "{}")
				if begun {
					w := d.newWorker(t, d.works)
					if err := w.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					d.waitForEvent(t, id, "hook_created h")
					d.waitForEvent(t, id, "step_completed kid") // else the pause might find the child not called yet
					if err := w.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				name := map[hold.Kind]string{hold.Run: string(id), hold.Workflow: "order", hold.Deployment: deployment}[kind]
				subject := hold.Subject{Kind: kind, Name: name}
				if _, err := d.Pause(t.Context(), project, subject, ""); err != nil {
					t.Fatal(err)
				}
				before := calls.Load()
				d.serveWith(t, f)
				ids := []entities.RunID{id}
				if kind != hold.Run {
					ids = append(ids, d.startRun(t, "{}"))
				}
				if begun {
					d.resume(t, id, "h", "1")
				}
				testdb.Eventually(t, "the runs are held", func() bool { return d.heldRuns(t) == len(ids) })
				if calls.Load() != before {
					t.Errorf("%d calls in the pause", calls.Load()-before)
				}
				if err := d.EndPause(t.Context(), project, subject); err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					d.waitForEvent(t, id, "hook_created h")
					if !begun || id != ids[0] {
						d.resume(t, id, "h", "1")
					}
					d.wantEnd(t, id, entities.RunCompleted, `"done"`)
				}
				d.waitForEmptyQueue(t)
			})
		}
	}
}

// heldRuns counts the runs whose invocations are held.
func (d *server) heldRuns(t *testing.T) (n int) {
	t.Helper()
	if err := d.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM messages WHERE held_by IS NOT NULL AND work = 'run'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPausedRunIsCancelled at once, or after a grace that it cannot use; and it fails at its deadline.
func TestPausedRunIsCancelled(t *testing.T) {
	t.Parallel()
	f := serve(t, func(*functionCall) { t.Error("a paused run was called") })
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, f.URL)
	at := d.startRun(t, "{}")
	graced := d.startRun(t, "{}")
	late := d.startRun(t, "{}", func(r *eventlog.Request) { r.Data.Deadline = new(time.Now().Add(200 * time.Millisecond)) })
	if _, err := d.Pause(t.Context(), project, hold.Subject{Kind: hold.Workflow, Name: "order"}, ""); err != nil {
		t.Fatal(err)
	}
	d.serveWith(t, f)
	d.askToCancel(t, at, 0)
	d.askToCancel(t, graced, 200*time.Millisecond)
	for id, want := range map[entities.RunID]entities.RunStatus{
		at: entities.RunCancelled, graced: entities.RunCancelled, late: entities.RunFailed,
	} {
		if got, _ := d.waitForEnd(t, id); got != want {
			t.Errorf("run ended %s, want %s", got, want)
		}
	}
	d.waitForEmptyQueue(t)
}
