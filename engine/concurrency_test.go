package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/why"
)

// bound sets how many calls of the tests' deployment may be under way at once.
func (d *server) bound(t *testing.T, url string, n int) {
	t.Helper()
	_, err := d.Register(t.Context(), project, queue.Deployment{ID: deployment, URL: url, MaxConcurrent: &n})
	if err != nil {
		t.Fatal(err)
	}
}

// TestInvocationsAndStepsShareTheCallsOfADeployment has two servers execute runs with steps, of which half have a limit
// as well. The function never counts more calls than its deployment may have.
func TestInvocationsAndStepsShareTheCallsOfADeployment(t *testing.T) {
	t.Parallel()
	const runs, steps, most = 12, 4, 3
	var c counter
	var calls atomic.Int32
	var firstTwo sync.WaitGroup
	firstTwo.Add(2)
	f := serve(t, func(call *functionCall) {
		c.enter("calls")
		defer c.leave("calls")
		if calls.Add(1) <= 2 {
			firstTwo.Done()
		}
		firstTwo.Wait()
		switch {
		case call.Type == contract.TypeStep:
			_, _ = call.w.Write([]byte(`"done"`))
		case call.ended() == steps:
			call.reply(object{"type": "complete", "output": "done"})
		default:
			var commands []map[string]any
			for i := range steps {
				command := object{"type": "runStep", "id": fmt.Sprint(i), "name": "s"}
				if i%2 == 0 {
					command["limits"] = []object{{"name": "some"}}
				}
				commands = append(commands, command)
			}
			call.reply(commands...)
		}
	})
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].bound(t, f.URL, most)
	servers[0].putLimit(t, "some", limit.Spec{Total: 4})
	for _, d := range servers {
		d.worker(t, d.works)
	}
	ids := make([]entities.RunID, runs)
	startMany(runs, func(i int) { ids[i] = servers[i%2].startRun(t, `null`) })
	for _, id := range ids {
		servers[0].wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
	if got := c.most["calls"]; got > most || got < 2 {
		t.Errorf("%d calls were under way at once, want 2 to %d", got, most)
	}
}

// TestARunThatIsInvokedAgainGoesBehindThoseThatWait: each of its answers calls for another invocation, and it has the only slot.
func TestARunThatIsInvokedAgainGoesBehindThoseThatWait(t *testing.T) {
	t.Parallel()
	const answers = 10
	called, waits := make(chan entities.RunID, 2*answers), make(chan struct{})
	f := serve(t, func(call *functionCall) {
		called <- call.Run.ID
		n := call.ended()
		switch {
		case string(call.Run.Input) == `"short"` || n == answers:
			call.reply(object{"type": "complete", "output": "done"})
		default:
			<-waits
			call.reply(object{"type": "recordStep", "id": fmt.Sprint(n), "name": "s", "output": n})
		}
	})
	d := startServer(t, f)
	d.bound(t, f.URL, 1)
	long := d.startRun(t, `"long"`)
	got := []entities.RunID{<-called}
	short := d.startRun(t, `"short"`)
	d.reason(t, short, why.DeploymentFull)
	close(waits)
	for _, id := range []entities.RunID{long, short} {
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
	if got = append(got, <-called); got[0] != long || got[1] != short {
		t.Errorf("called %v first, want %s and %s", got, long, short)
	}
}

// TestTheTimeOfAStepRunsWhileItWaitsForItsDeployment: the step fails without a call, although there is no room.
func TestTheTimeOfAStepRunsWhileItWaitsForItsDeployment(t *testing.T) {
	t.Parallel()
	waits, failed := make(chan struct{}), make(chan struct{})
	f := serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			t.Error("the step was called")
		case string(call.Run.Input) == `"other"`:
			<-failed
			call.reply(object{"type": "complete", "output": "done"})
		case call.ended() == 1:
			call.reply(object{"type": "complete", "output": "done"})
		default:
			<-waits
			call.reply(object{"type": "runStep", "id": "x", "timeout": "1s"})
		}
	})
	d := startServer(t, f)
	d.bound(t, f.URL, 1)
	id := d.startRun(t, `null`)
	d.reason(t, id, why.Called)
	other := d.startRun(t, `"other"`)
	d.reason(t, other, why.DeploymentFull)
	close(waits)
	d.waitForEvent(t, id, "step_failed x")
	close(failed)
	for _, id := range []entities.RunID{id, other} {
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
}

// TestADeploymentWithoutRoomIsAReason, for an invocation and for a step; a higher bound ends it.
func TestADeploymentWithoutRoomIsAReason(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			<-release
			_, _ = call.w.Write([]byte(`"done"`))
		case call.has("step_completed", "x"):
			call.reply(object{"type": "complete", "output": "done"})
		default:
			call.reply(object{"type": "runStep", "id": "x"}, object{"type": "runStep", "id": "y"})
		}
	})
	d := startServer(t, f)
	d.bound(t, f.URL, 1)
	first := d.startRun(t, `null`)
	d.reason(t, first, why.StepRunning)
	second := d.startRun(t, `null`)
	ofStep, ofRun := d.reason(t, first, why.DeploymentFull), d.reason(t, second, why.DeploymentFull)
	if ofStep.StepID == "" || ofStep.Held != 1 || ofStep.Slots != 1 || ofStep.DeploymentID != deployment {
		t.Errorf("the step: got %+v", ofStep)
	}
	if ofRun.StepID != "" || ofRun.Held != 1 || ofRun.Ahead != 1 || ofRun.Since == nil {
		t.Errorf("the run: got %+v", ofRun)
	}
	if e := d.explain(t, second); e.Verdict != why.VerdictWaiting {
		t.Errorf("got verdict %s", e.Verdict)
	}
	remedied(t, ofRun, why.PutDeployment)
	d.bound(t, f.URL, 4)
	d.reason(t, second, why.StepRunning)
	close(release)
	for _, id := range []entities.RunID{first, second} {
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	}
}
