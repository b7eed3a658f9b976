package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// startsChild returns the request for a step that is a child run.
func startsChild(parent entities.RunID, step string) eventlog.Request {
	child := eventlog.NewRun(time.Now(), []byte(`null`), entities.EventData{
		DeploymentID: deployment, WorkflowName: "child", Driver: entities.DriverServer,
		ParentID: parent, ParentStep: entities.StepID(step),
	})
	return eventlog.Request{
		Type: entities.EventStepCreated, CorrelationID: step, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{StepName: "child", Step: &entities.StepSpec{ChildID: child.RunID}}, Child: &child,
	}
}

// startChildren starts so many children of a run, and returns their IDs.
func (d *server) startChildren(t *testing.T, parent entities.RunID, n int) (ids []entities.RunID) {
	t.Helper()
	var all []eventlog.Request
	for i := range n {
		all = append(all, startsChild(parent, fmt.Sprint("c", i)))
		ids = append(ids, all[i].Child.RunID)
	}
	if _, err := d.log.AppendAll(t.Context(), project, parent, all, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestCancelledTreeEndsBesideStarts: racers start runs below the children of a root that is cancelled, on two servers,
// until each of them is refused. No run of the tree is left open, none is started after that, and no work remains.
func TestCancelledTreeEndsBesideStarts(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	d, other := newServer(t, dsn), newServer(t, dsn)
	d.register(t, deployment, serve(t, func(c *functionCall) { c.reply(object{"type": "openHook", "id": "h"}) }).URL)
	root := d.startRun(t, `null`)
	const racers = 8
	children := d.startChildren(t, root, 100)
	var started atomic.Int32
	var all sync.WaitGroup
	for i := range racers {
		log, parent := []*server{d, other}[i%2].log, children[i*len(children)/racers]
		all.Go(func() {
			for n := 0; ; n++ {
				r := startsChild(parent, fmt.Sprint("s", n))
				results, err := log.AppendAll(t.Context(), project, parent, []eventlog.Request{r}, eventlog.AppendOptions{})
				switch {
				case errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrRunEnded):
					return
				case err != nil:
					t.Error(err)
					return
				case results[0].Event.Type == entities.EventStepFailed:
					if code := results[0].Event.Data.ErrorCode; code != "root_cancelled" {
						t.Errorf("a start is refused with %q", code)
					}
					return
				}
				started.Add(1)
			}
		})
	}
	testdb.Eventually(t, "racers start runs", func() bool { return started.Load() > racers })
	cancelRun(t, d, root)
	all.Wait()
	total := d.Count(t, `SELECT count(*) FROM runs WHERE root_id = $1`, root)
	for _, s := range []*server{d, other} {
		s.worker(t, s.works)
	}
	testdb.Eventually(t, "the tree has ended", func() bool {
		return d.Count(t, `SELECT count(*) FROM runs WHERE root_id = $1 AND completed_at IS NULL`, root) == 0
	})
	d.waitForEmptyQueue(t)
	if n := d.Count(t, `SELECT count(*) FROM runs WHERE root_id = $1`, root); n != total || n != len(children)+int(started.Load()) {
		t.Errorf("%d runs are below the root, want the %d that were started before", n, total)
	}
}

// TestEndedParentGetsNoReport: the end of a child is reported to a parent that waits for it, and to no other, which
// would be two deliveries for each child of a tree that is cancelled.
func TestEndedParentGetsNoReport(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, "http://127.0.0.1:1")
	root := d.startRun(t, `null`)
	children := d.startChildren(t, root, 2)
	for i, ended := range []bool{false, true} {
		if _, err := d.log.Append(t.Context(), project, eventlog.Request{
			RunID: children[i], Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven, ParentEnded: ended,
		}); err != nil {
			t.Fatal(err)
		}
		n := d.Count(t, `SELECT count(*) FROM messages WHERE work = $1 AND subject = $2`, message.WorkReport, fmt.Sprint("c", i))
		if want := map[bool]int{false: 1, true: 0}[ended]; n != want {
			t.Errorf("parent ended %v: %d reports, want %d", ended, n, want)
		}
	}
}
