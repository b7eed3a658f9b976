package engine

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestOneRunIsFoundAmongMany: statements about one run use its ID, even if they were planned while the tables were
// empty. With any other index they would read the entries of all runs.
func TestOneRunIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	const others = 1000
	dsn := testdb.Indexed(t)
	// The subtest ends its session, so that the index statistics are complete.
	t.Run("a run and its messages", func(t *testing.T) {
		// With one session all statements keep their first plan.
		r := idleReplica(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
		d := serverOn(t, r.pool)
		w := d.newWorker(t, d.works)
		d.onRecord(t, w.ProcessID())
		d.register(t, deployment, serve(t, workflowWithAll).URL)
		d.AddRuns(t, string(project), deployment, others, w.ProcessID())
		d.Clear(t)
		d.completeRun(t, w)
		d.AddRuns(t, string(project), deployment, others, w.ProcessID())
		d.completeRun(t, w)
	})
	for index, read := range testdb.Read(t, dsn) {
		if read >= others {
			t.Errorf("the statements read %d entries of index %s", read, index)
		}
	}
}

// workflowWithAll is a workflow with a hook, a wait that ends at once, and a step.
func workflowWithAll(c *functionCall) {
	switch {
	case c.Type == contract.TypeStep:
	case !c.has("step_completed", "a"):
		c.reply(object{"type": "openHook", "id": "h", "token": "T"}, object{"type": "wait", "id": "w", "for": "0s"},
			object{"type": "runStep", "id": "a"})
	default:
		c.reply(object{"type": "complete"})
	}
}

// completeRun makes the worker complete a run of workflowWithAll, and then tries to cancel the run.
func (d *server) completeRun(t *testing.T, w *queue.Worker) {
	t.Helper()
	d.Attach(w)
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	cancel := eventlog.Request{RunID: id, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven}
	if _, err := d.log.Append(t.Context(), project, cancel); err == nil {
		t.Fatal("cancelling an ended run succeeded")
	}
}
