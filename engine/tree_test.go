package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// TestFlowCatchesARefusedStart: a flow starts itself, as a child and otherwise, until a limit of the project refuses it.
func TestFlowCatchesARefusedStart(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	d.Exec(t, `INSERT INTO projects (name, max_depth) VALUES ($1, 2) ON CONFLICT (name) DO UPDATE SET max_depth = 2`, project)
	v, err := registry.New(d.pool, time.Now).Put(t.Context(), project, []byte(`
flow: deep
steps:
  child: {flow: deep, catch: [{codes: [too_deep]}]}
  other: {start: deep, catch: [{codes: [too_deep]}]}
output: "${has(steps.child.error.code) ? steps.child.error.code + ' ' + steps.other.error.code : 'below: ' + steps.child.output}"
`))
	if err != nil {
		t.Fatal(err)
	}
	id := d.startRun(t, `{}`, func(r *eventlog.Request) { r.Data.DeploymentID, r.Data.WorkflowName = v.DeploymentID, v.Name })
	d.wantEnd(t, id, entities.RunCompleted, `"below: below: too_deep too_deep"`)
	testdb.Eventually(t, "all runs end", func() bool {
		return d.Count(t, `SELECT count(*) FROM runs WHERE status = 'completed' AND (id = $1 OR root_id = $1)`, id) == 7
	})
}

// TestLoopsOfSignalsEnd: a run that a signal has started sends the signal, which starts a run. All are of one tree.
func TestLoopsOfSignalsEnd(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	d.Exec(t, `INSERT INTO projects (name, max_depth) VALUES ($1, 3) ON CONFLICT (name) DO UPDATE SET max_depth = 3`, project)
	v, err := registry.New(d.pool, time.Now).Put(t.Context(), project,
		[]byte(`{flow: echo, steps: {a: {emit: {signal: "ping pong"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	trg, _, err := d.runs.Triggers().Put(t.Context(), project, "t", trigger.Spec{
		Kind: trigger.KindSignal, Source: "ping pong", Workflow: "echo", Deployment: v.DeploymentID,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := d.startRun(t, `{}`, func(r *eventlog.Request) { r.Data.DeploymentID, r.Data.WorkflowName = v.DeploymentID, v.Name })
	var reason string
	testdb.Eventually(t, "the loop ends", func() bool {
		d.Scan(t, `SELECT coalesce(max(reason), '') FROM trigger_events WHERE trigger_id = $1 AND decision = 'refused'`,
			[]any{trg.ID}, &reason)
		return reason != ""
	})
	if !strings.HasPrefix(reason, "too_deep: ") || !strings.Contains(reason, string(id)) {
		t.Errorf("got the reason %q, want a code and the root", reason)
	}
	d.Want(t, "runs are below the root", 3, `SELECT count(*) FROM runs WHERE root_id = $1`, id)
}
