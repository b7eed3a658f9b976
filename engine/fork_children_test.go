package engine

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// family serves a workflow with a child, which ends with what its hook receives, and the workflow with what the child
// has ended with.
func family(t *testing.T, start object) *server {
	t.Helper()
	command := object{"type": "startChild", "id": "kid", "workflow": "child", "input": 7, "timeout": "1h"}
	for key, value := range start {
		command[key] = value
	}
	return startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.has("hook_received", "go"):
			c.reply(object{"type": "complete", "output": c.log["hook_received go"]})
		case c.Run.Workflow == "child":
			c.reply(object{"type": "openHook", "id": "go"})
		case c.has("step_completed", "kid"):
			c.reply(object{"type": "complete", "output": c.log["step_completed kid"]})
		default:
			c.reply(command)
		}
	}))
}

// openChild waits until the child of a run waits for its hook. It returns the log of the run up to the creation of the
// child's step, and the first event of the child.
func (d *server) openChild(t *testing.T, id entities.RunID) (log []entities.Event, child entities.Event) {
	t.Helper()
	d.waitForEvent(t, id, "step_created kid")
	log = d.logOf(t, id)
	log = log[:1+slices.IndexFunc(log, func(e entities.Event) bool { return e.Type == entities.EventStepCreated })]
	kid := childOf(log[len(log)-1])
	d.waitForEvent(t, kid, "hook_created go")
	return log, d.logOf(t, kid)[0]
}

// wantForkRefused checks that a fork was refused for a reason, and which run is in the way.
func wantForkRefused(t *testing.T, err error, reason string, holder entities.RunID) {
	t.Helper()
	if refused, ok := errors.AsType[*entities.ForkRefusedError](err); !ok || refused.Reason != reason ||
		refused.Holder != holder {
		t.Errorf("got error %v, want the reason %s because of run %q", err, reason, holder)
	}
}

// TestForkStartsOpenChildrenAgain as runs of its own, whatever becomes of those of the original, as long as these are
// kept.
func TestForkStartsOpenChildrenAgain(t *testing.T) {
	t.Parallel()
	d := family(t, object{"attributes": object{"a": "b"}, "onParentEnd": "leave"})
	id := d.startRun(t, `{}`)
	log, first := d.openChild(t, id)
	time0 := time.Now()
	fork, err := d.fork(t, log)
	if err != nil {
		t.Fatal(err)
	}
	own, again := d.openChild(t, fork)
	if of := own[0].Data.Fork; of.Children != 1 || of.Steps != 0 || of.Events != int64(len(log)) {
		t.Errorf("the fork says %+v, want one child", of)
	}
	if again.RunID == first.RunID || again.Data.ParentID != fork || again.Data.ParentStep != "kid" ||
		again.Data.RootID != fork || again.Data.Depth != 1 || !again.Data.Detached || string(again.Payload) != "7" ||
		again.Data.Attributes["a"] != "b" || again.Data.Deadline.Sub(time0).Round(time.Minute) != time.Hour {
		t.Errorf("the child of the fork begins with %+v, want what the original has asked for", again)
	}
	d.resume(t, again.RunID, "go", `"fork"`)
	d.wantEnd(t, fork, entities.RunCompleted, `"fork"`)
	d.resume(t, first.RunID, "go", `"original"`)
	d.wantEnd(t, id, entities.RunCompleted, `"original"`)

	late, err := d.fork(t, log) // the child has ended: its result is not in the events
	if err != nil {
		t.Fatal(err)
	}
	if _, kid := d.openChild(t, late); kid.RunID == first.RunID {
		t.Error("the fork waits for the child of the original")
	}
	var b pgx.Batch
	store.DeleteRuns(&b, []entities.RunID{first.RunID})
	if err := d.pool.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	_, err = d.fork(t, log)
	wantForkRefused(t, err, entities.ForkOpenChild, first.RunID)
}

// TestForksRaceForTheKeyOfAnOpenChild, while the child that has it ends. One of them gets it, all at once or none of it.
func TestForksRaceForTheKeyOfAnOpenChild(t *testing.T) {
	t.Parallel()
	d := family(t, object{"key": "k"})
	id := d.startRun(t, `{}`)
	log, first := d.openChild(t, id)
	_, err := d.fork(t, log)
	wantForkRefused(t, err, entities.ForkChildKey, first.RunID)
	const racers = 8
	var mu sync.Mutex
	var forks []entities.RunID
	started := make(chan struct{})
	var all sync.WaitGroup
	for range racers {
		all.Go(func() {
			for won := false; !won; {
				fork, err := d.fork(t, log)
				mu.Lock()
				if err == nil {
					forks = append(forks, fork)
				} else if refused, ok := errors.AsType[*entities.ForkRefusedError](err); !ok ||
					refused.Reason != entities.ForkChildKey {
					t.Errorf("got error %v, want a fork or the reason %s", err, entities.ForkChildKey)
				}
				won = len(forks) > 0 || t.Failed()
				mu.Unlock()
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	<-started
	d.resume(t, first.RunID, "go", `"original"`)
	all.Wait()
	if len(forks) != 1 {
		t.Fatalf("got the forks %v, want one", forks)
	}
	if n := len(d.children(t, forks[0])); n != 1 {
		t.Errorf("the fork has %d children, want one", n)
	}
	var runs int
	d.Scan(t, `SELECT count(*) FROM runs`, nil, &runs)
	if runs != 4 {
		t.Errorf("there are %d runs, want two with a child each", runs)
	}
	d.wantEnd(t, id, entities.RunCompleted, `"original"`)
}

// children returns the children of a run that have not ended.
func (d *server) children(t *testing.T, id entities.RunID) []entities.RunID {
	t.Helper()
	list, err := store.OpenChildren(t.Context(), pg.NewPool(d.pool), id, 10)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestForksAndTheirChildrenShareSlots, and neither begins without.
func TestForksAndTheirChildrenShareSlots(t *testing.T) {
	t.Parallel()
	d := family(t, nil)
	d.putLimit(t, "one", limit.Spec{Total: 1})
	for _, workflow := range []string{"order", "child"} {
		d.putPolicy(t, limit.Policy{Workflow: workflow, Limits: []limit.PolicyUse{{Name: "one"}}})
	}
	id := d.startRun(t, `{}`)
	log, _ := d.openChild(t, id)
	_, err := d.fork(t, log)
	wantForkRefused(t, err, entities.ForkLimits, "")
	cancelRun(t, d, id)
	var fork entities.RunID
	testdb.Eventually(t, "the slot is free", func() bool {
		fork, err = d.fork(t, log)
		return err == nil
	})
	_, child := d.openChild(t, fork)
	d.resume(t, child.RunID, "go", `"yes"`)
	d.wantEnd(t, fork, entities.RunCompleted, `"yes"`)
}
