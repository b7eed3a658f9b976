package engine

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/progress"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
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

// TestProgressOfAStepWithManyAttempts: a step that polls has more events than are read of it.
func TestProgressOfAStepWithManyAttempts(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		c.w.Header().Set("Retry-After", "3600")
		c.w.WriteHeader(http.StatusAccepted)
	}))
	putFlow(t, d, "flow: polls\ndeployment: dpl_test\nsteps: {poll: {call: poll, timeout: 24h}}")
	id := d.startRun(t, `null`, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = "polls@1", "polls"
	})
	want := map[string]flow.StepStage{"poll": {Stage: flow.StageRetrying}}
	d.wantStages(t, id, want)
	d.Exec(t, `
		INSERT INTO events (run_id, seq, type, correlation_id, spec_version, created_at, data, payload, project, xid)
		SELECT run_id, seq + i, type, correlation_id, spec_version, created_at, data, payload, project, xid
		FROM events, generate_series(1, 300) AS i WHERE type = 'step_retrying'`)
	if diff := cmp.Diff(want, d.stages(t, id)); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
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
	testdb.Eventually(t, "the stages", func() bool {
		diff = cmp.Diff(want, d.stages(t, id))
		return diff == ""
	})
}

// TestRunsKeepTheDocumentThatTheyWereStartedWith: an imported run of a child has stages only if the version has the same
// document in the database. Another one has the same steps here, so that the log alone does not tell.
func TestRunsKeepTheDocumentThatTheyWereStartedWith(t *testing.T) {
	t.Parallel()
	const child = "flow: kid\nsteps: {a: {set: 1}, b: {needs: a, set: 2}}"
	other := strings.Replace(child, "needs: a, ", "", 1)
	d := startServer(t, serve(t, shop))
	putFlow(t, d, child)
	putFlow(t, d, "flow: up\nsteps: {kid: {flow: kid}}")
	up := d.startRun(t, `null`, func(r *eventlog.Request) {
		r.Data.DeploymentID, r.Data.WorkflowName = "up@1", "up"
	})
	d.wantEnd(t, up, entities.RunCompleted, `{"kid":{"b":2}}`)
	var kid entities.RunID
	if err := d.pool.QueryRow(t.Context(), `SELECT id FROM runs WHERE workflow_name = 'kid'`).Scan(&kid); err != nil {
		t.Fatal(err)
	}
	for _, document := range []string{child, other} {
		there := idleServer(t, testdb.New(t))
		putFlow(t, there, document)
		var records []upkeep.Record
		_, err := upkeep.NewMaintainer(d.pool, time.Now).Export(t.Context(), kid, func(r upkeep.Record) error {
			records = append(records, r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = upkeep.NewMaintainer(there.pool, time.Now).Import(t.Context(), func() (upkeep.Record, error) {
			if len(records) == 0 {
				return upkeep.Record{}, io.EOF
			}
			r := records[0]
			records = records[1:]
			return r, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		flows := registry.New(there.pool, time.Now)
		p, err := flows.Program(t.Context(), project, "kid@1")
		if err != nil {
			t.Fatal(err)
		}
		run, err := store.RunByID(t.Context(), pg.NewPool(there.pool), project, kid)
		if err != nil {
			t.Fatal(err)
		}
		_, err = progress.Read(t.Context(), there.log.Log, run, p)
		if errors.Is(err, flow.ErrOtherBuild) != (document == other) || document == child && err != nil {
			t.Errorf("with %q: got %v", document, err)
		}
		rerun := eventlog.NewRun(time.Now(), []byte(`null`), entities.EventData{
			WorkflowName: "kid", DeploymentID: "kid@1", Build: d.buildOf(t, kid),
		})
		_, _, err = there.log.Start(t.Context(), project, rerun)
		if errors.Is(err, flow.ErrOtherBuild) != (document == other) || document == child && err != nil {
			t.Errorf("started again with %q: got %v", document, err)
		}
	}
}

// buildOf returns the build that a run was started with.
func (d *server) buildOf(t *testing.T, id entities.RunID) (build string) {
	t.Helper()
	err := d.pool.QueryRow(t.Context(), `SELECT coalesce(data ->> 'build', '') FROM events WHERE run_id = $1 AND seq = 1`, id).
		Scan(&build)
	if err != nil || build == "" {
		t.Fatalf("run %s was started with the build %q (%v)", id, build, err)
	}
	return build
}
