package engine

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/flow"
	"github.com/stepwell-dev/stepwell/queue/flow/progress"
	"github.com/stepwell-dev/stepwell/queue/flow/registry"
)

// stagesFlow comes to a state in which its steps are at every stage: row 3 is held, and people have to agree.
const stagesFlow = `
flow: stages
deployment: dpl_test
steps:
  rows: {map: input, concurrency: 2, tolerate: 1, do: {call: row, undo: {call: unrow}}}
  deep: {map: input, do: {steps: {a: {wait: 1ms}, b: {needs: a, set: 1}}}}
  poll: {loop: {do: {call: ask}, until: iteration.index == 2}}
  work: {plan: think, allow: {calls: [ask]}}
  hold: {call: hold, retry: {maxAttempts: 5, backoff: 24h}}
  pay: {call: pay, undo: {call: refund}, catch: [{to: bill}]}
  bill: {call: bill, undo: {call: unbill}}
  never: {needs: pay, when: "false", set: 1}
  agree: {approval: {title: t, quorum: 2}, needs: [rows, deep, poll, work, pay]}
  last: {needs: agree, call: last}
`

// TestProgressOfAFlow reads how far the steps of a run are while it goes on, and once it has failed and was undone.
func TestProgressOfAFlow(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}), make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		c.w.Header().Set("Content-Type", "application/json")
		refuse := func(status int, code string) {
			c.w.WriteHeader(status)
			_, _ = fmt.Fprintf(c.w, `{"error":{"message":"no","code":%q}}`, code)
		}
		switch {
		case c.Step.Name == "row" && string(c.Step.Input) == "3":
			close(held)
			<-release
			_, _ = fmt.Fprint(c.w, `3`)
		case c.Step.Name == "row" && string(c.Step.Input) == "2":
			refuse(http.StatusUnprocessableEntity, "bad")
		case c.Step.Name == "pay", c.Step.Name == "last":
			refuse(http.StatusUnprocessableEntity, c.Step.Name+"_failed")
		case c.Step.Name == "hold":
			refuse(http.StatusServiceUnavailable, "busy")
		case c.Step.Name == "think":
			_, _ = fmt.Fprint(c.w, `{"steps":{"x":{"call":"ask"},"y":{"needs":"x","call":"ask"}}}`)
		default:
			_, _ = fmt.Fprint(c.w, `null`)
		}
	}))
	putFlow(t, d, stagesFlow)
	id := d.startRun(t, `[1,2,3,4]`, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = "stages@1", "stages"
	})
	<-held
	d.wantStages(t, id, map[string]flow.StepStage{
		"rows":  {Stage: flow.StageRunning, Items: &flow.Items{Total: 4, Begun: 4, Completed: 2, Failed: 1}},
		"deep":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 4, Completed: 4}},
		"poll":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 2, Completed: 2}},
		"work":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 2, Completed: 2}},
		"hold":  {Stage: flow.StageRetrying},
		"pay":   {Stage: flow.StageFailed, Code: "pay_failed"},
		"bill":  {Stage: flow.StageCompleted},
		"never": {Stage: flow.StageSkipped},
		"agree": {Stage: flow.StagePending},
		"last":  {Stage: flow.StagePending},
	})
	close(release)
	d.waitForEvent(t, id, "hook_created agree")
	if got := d.stages(t, id)["agree"].Stage; got != flow.StageWaiting {
		t.Errorf("the approval is %s, want waiting", got)
	}
	d.vote(t, id, "agree", "anna", "bob")
	d.waitForEnd(t, id)
	d.wantStages(t, id, map[string]flow.StepStage{
		"rows":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 4, Completed: 3, Failed: 1, Undone: 3}},
		"deep":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 4, Completed: 4}},
		"poll":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 2, Completed: 2}},
		"work":  {Stage: flow.StageCompleted, Items: &flow.Items{Begun: 2, Completed: 2}},
		"hold":  {Stage: flow.StageCancelled, Code: "cancelled"},
		"pay":   {Stage: flow.StageFailed, Code: "pay_failed"},
		"bill":  {Stage: flow.StageCompleted, Undoing: flow.StageCompleted},
		"never": {Stage: flow.StageSkipped},
		"agree": {Stage: flow.StageCompleted},
		"last":  {Stage: flow.StageFailed, Code: "last_failed"},
	})
}

// stages returns how far the steps of a run are.
func (d *server) stages(t *testing.T, id entities.RunID) map[string]flow.StepStage {
	t.Helper()
	run, err := store.RunByID(t.Context(), pg.NewPool(d.pool), project, id)
	if err != nil {
		t.Fatal(err)
	}
	p, err := registry.New(d.pool, time.Now).Program(t.Context(), project, run.DeploymentID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := progress.Read(t.Context(), d.log.Log, run, p)
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]flow.StepStage{}
	for i, s := range p.Graph().Steps {
		stages[s.ID] = list[i]
	}
	return stages
}

// wantStages waits until the steps of a run are as far as they should be.
func (d *server) wantStages(t *testing.T, id entities.RunID, want map[string]flow.StepStage) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Errorf("stages (-want +got):\n%s", diff)
		}
	}()
	eventually(t, "the stages", func() bool {
		diff = cmp.Diff(want, d.stages(t, id))
		return diff == ""
	})
}
