package engine

import (
	"testing"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// TestStartWithRoomBeginsAtOnce, in the transaction that creates the run, and needs no pass. So does the next one after
// the slot was free again for a while.
func TestStartWithRoomBeginsAtOnce(t *testing.T) {
	t.Parallel()
	d, release := holding(t)
	d.putPolicy(t, limit.Policy{Limits: []limit.PolicyUse{{Name: "one", Key: "attributes.tenant"}}})
	tenant := func(name string) func(*eventlog.Request) {
		return func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"tenant": name} }
	}
	d.wantEnd(t, d.startRun(t, `"x"`, tenant("first")), entities.RunCompleted, `"done"`) // reads the policy
	atOnce := func(id entities.RunID) bool {
		return d.Count(t, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1 AND seq <= 2`, id) == 1
	}
	holds := d.startRun(t, `"hold"`, tenant("t"))
	d.waitForEvent(t, holds, "run_started")
	if !atOnce(holds) {
		t.Error("the run with room was created and started in two transactions")
	}
	waits := d.startRun(t, `"x"`, tenant("t"))
	if s := d.status(t, waits); s != entities.RunPending {
		t.Errorf("the second run is %s while the first one holds the slot", s)
	}
	other := d.startRun(t, `"x"`, tenant("other"))
	d.wantEnd(t, other, entities.RunCompleted, `"done"`)
	if !atOnce(other) {
		t.Error("the run with another key was created and started in two transactions")
	}
	release()
	d.wantEnd(t, waits, entities.RunCompleted, `"done"`)
	d.wantNoPermits(t)
}

// TestPolicyForStepsAlone starts runs whose limits are those of their steps: they wait for nothing.
func TestPolicyForStepsAlone(t *testing.T) {
	t.Parallel()
	d, _ := holding(t)
	d.putPolicy(t, limit.Policy{Steps: map[string][]limit.PolicyUse{"charge": {{Name: "one"}}}})
	for range 2 { // the first one reads the policy
		id := d.startRun(t, `"x"`)
		d.wantEnd(t, id, entities.RunCompleted, `"done"`)
		d.Want(t, "runs with limits of steps", 1, `SELECT count(*) FROM runs WHERE id = $1 AND step_limits IS NOT NULL`, id)
	}
}
