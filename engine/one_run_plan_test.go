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
		w := d.newWorker(t, func(o *queue.WorkerOptions) { o.Handlers = d.runs.Handlers() })
		d.onRecord(t, w.ProcessID())
		d.register(t, deployment, serve(t, workflowWithAll).URL)
		d.insertRuns(t, others, w.ProcessID())
		d.emptyTables(t)
		d.completeRun(t, w)
		d.insertRuns(t, others, w.ProcessID())
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

// emptyTables deletes all rows, but keeps the pages of the tables.
func (d *server) emptyTables(t *testing.T) {
	t.Helper()
	d.exec(t, `SET session_replication_role = replica`) // or foreign keys would delete the rows through indexes
	for _, table := range []string{"runs", "hooks", "steps", "waits", "messages", "message_keys"} {
		d.exec(t, `DELETE FROM `+table+` WHERE ctid >= '(0,0)'`) // a TID scan, which the index statistics do not count
		d.exec(t, `VACUUM (ANALYZE, TRUNCATE false) `+table)
	}
	d.exec(t, `SET session_replication_role = origin`)
}

// insertRuns inserts open runs. Each has a hook, a step, a wait, work leased to the holder, a delayed message and a
// key. It reads no index, since it does not check foreign keys.
func (d *server) insertRuns(t *testing.T, runs int, holder string) {
	t.Helper()
	d.exec(t, `SET session_replication_role = replica`)
	for _, insert := range []string{
		`runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver, created_at, updated_at)
			SELECT run, $1, $2, 'order', 'running', 4, 1, 0, 'server', now(), now()`,
		`hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT run, run, 'other', run, false, 4, 2, now()`, // finding a hook may read all hooks of its project
		`steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			SELECT run, 'a', 'a', 'pending', 0, 4, 3, now(), now()`,
		`waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
			SELECT run, 'w', 'waiting', 4, now() + interval '1 h', now(), now()`,
		`messages (id, project, topic, deployment_id, run_id, work, content_type, body, expires_at, due_at, lease, holder)
			SELECT 'msg_work_' || run, $1, 'order', $2, run, 'run', '', '', now() + interval '1 d', now() + interval '1 h', run, $4`,
		`message_keys (project, deployment_id, topic, key, message_id, expires_at)
			SELECT $1, $2, '__wkf_workflow_order', 'step_' || run, 'msg_' || run, now() + interval '1 d'`,
		`messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
			SELECT 'msg_' || run, $1, 'order', $2, run, '', '', now() + interval '1 d', now() + interval '1 h'`,
	} {
		// The WITH gives each argument a type, since not every statement uses all four.
		d.exec(t, `WITH given AS (SELECT $1::text, $2::text, $3::integer, $4::text) INSERT INTO `+insert+`
			FROM (SELECT 'wrun_' || n FROM generate_series(1, $3) n) AS crowd (run)`, project, deployment, runs, holder)
	}
	d.exec(t, `SET session_replication_role = origin`)
}
