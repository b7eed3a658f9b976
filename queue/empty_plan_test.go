package queue

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// TestPlansMadeOnAnEmptyQueueUseTheLeaseIndex: a plan that was made when the queue was empty and just vacuumed must not
// read the whole table, or all leased messages, when the queue has grown.
func TestPlansMadeOnAnEmptyQueueUseTheLeaseIndex(t *testing.T) {
	t.Parallel()
	conn := emptyQueue(t)
	for _, condition := range []string{OfLease, ofMessage, ofWork} {
		for _, sql := range []string{
			`DELETE FROM messages WHERE ` + condition,
			`SELECT EXISTS (SELECT FROM messages WHERE ` + condition + ` AND due_at > clock_timestamp() FOR UPDATE)`,
		} {
			for _, plan := range []string{testdb.GenericPlan(t, conn, sql), testdb.CustomPlan(t, conn, sql)} {
				if indexesOf(plan) != "messages_lease_key" {
					t.Errorf("a message is not found by its lease alone: %s\n%s", sql, plan)
				}
			}
		}
	}
}

// TestSeveralLeasesAreFoundOneByOne: a plan that was made on an empty queue must not read the leases of all runs.
func TestSeveralLeasesAreFoundOneByOne(t *testing.T) {
	t.Parallel()
	conn := emptyQueue(t)
	for _, sql := range []string{endAllWork, `SELECT ` + liveLeases} {
		plan := testdb.GenericPlan(t, conn, sql)
		if indexesOf(plan) != "messages_lease_key" || !strings.Contains(plan, "(lease = l.lease)") {
			t.Errorf("messages are not found by their leases alone: %s\n%s", sql, plan)
		}
	}
}

// TestPlansMadeWhileNothingIsLeasedFindTheInvocation: nor may the question whether a run is being invoked read all
// leases, although there were none.
func TestPlansMadeWhileNothingIsLeasedFindTheInvocation(t *testing.T) {
	t.Parallel()
	conn := emptyQueue(t)
	for _, sql := range []string{
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, content_type, body, expires_at, due_at)
			SELECT 'msg_' || n, '', '', '', 'wrun_' || n, 'run', '', '', now(), now() FROM generate_series(1, 10000) n`,
		`DELETE FROM messages WHERE id > 'msg_10'`, `VACUUM ANALYZE messages`, // but a few
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, plan := range []string{
		testdb.GenericPlan(t, conn, `SELECT `+noInvocation), testdb.CustomPlan(t, conn, `SELECT `+noInvocation),
	} {
		if indexesOf(plan) != "messages_work_key" {
			t.Errorf("the invocation of a run is not found by the run:\n%s", plan)
		}
	}
}

// indexesOf returns the indexes that a plan reads.
func indexesOf(plan string) string {
	var indexes []string
	for _, index := range regexp.MustCompile(`(?:using|Index Scan on) (\w+_(?:idx|key|pkey))`).FindAllStringSubmatch(plan, -1) {
		indexes = append(indexes, index[1])
	}
	return strings.Join(indexes, " ")
}

// TestGrantedRunsAreLeasedOneByOne: a plan that was made on an empty queue must not read the work of all runs.
func TestGrantedRunsAreLeasedOneByOne(t *testing.T) {
	t.Parallel()
	conn := emptyQueue(t)
	for sql, indexes := range map[string][]string{
		leaseRuns: {"messages_pkey", "messages_work_key", "(run_id = "}, leaseSteps: {"messages_pkey"},
	} {
		plan := testdb.GenericPlan(t, conn, sql)
		for _, want := range indexes {
			if !strings.Contains(plan, want) {
				t.Errorf("the plan has no %q: %s\n%s", want, sql, plan)
			}
		}
	}
}

// emptyQueue returns a session of a database whose queue is empty and was just vacuumed.
func emptyQueue(t *testing.T) *pgx.Conn {
	t.Helper()
	pool := testdb.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	if _, err := conn.Exec(t.Context(), `VACUUM ANALYZE messages`); err != nil {
		t.Fatal(err)
	}
	return conn.Conn()
}

// TestMessageLookupsUseTheirIndex: statements about one message use the index on its ID or its lease, even if they were
// planned while the table was empty. Any other index would read many other messages.
func TestMessageLookupsUseTheirIndex(t *testing.T) {
	t.Parallel()
	const others = 1000
	dsn := testdb.Indexed(t)
	t.Run("messages of a run", func(t *testing.T) { // a subtest, so that its session ends before the next one
		r := withoutHints(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }) // so that all statements use the first plan
		w := r.newWorker(t)
		r.registerProcess(t, w.ProcessID())
		r.AddRuns(t, string(project), deployment, others, w.ProcessID())
		r.Clear(t)
		r.play(t)
		r.AddRuns(t, string(project), deployment, others, w.ProcessID())
		r.play(t)
	})
	for index, read := range testdb.Read(t, dsn) {
		if read >= others {
			t.Errorf("%d entries of index %s were read", read, index)
		}
	}
}

// play executes the statements about messages of a run with a step, due messages, and the step's keys.
func (r *replica) play(t *testing.T) {
	t.Helper()
	r.Exec(t, `INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver,
			created_at, updated_at)
		VALUES ('wrun_one', $1, $2, 'order', 'running', 4, 1, 0, 'server', now(), now()) ON CONFLICT DO NOTHING`,
		project, deployment)
	r.Exec(t, `INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		VALUES ('wrun_one', 'a', 'a', 'pending', 0, 4, 3, now(), now()) ON CONFLICT DO NOTHING`)
	sent, err := r.Send(t.Context(), newMessage(ofRun("wrun_one")))
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Receive(t.Context(), project, topic, sent, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetVisibility(t.Context(), project, topic, m.Lease, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := r.Acknowledge(t.Context(), project, topic, m.Lease); err != nil {
		t.Fatal(err)
	}
	r.take(t)
	lost := cluster.Stranded{ID: "wrun_one", Project: project, DeploymentID: deployment, WorkflowName: "order"}
	forget := func(tx pgx.Tx) error { return cluster.ForgetLostKeys(t.Context(), tx, lost) }
	if err := pg.InTx(t.Context(), r.pool, forget); err != nil {
		t.Fatal(err)
	}
}

// take takes messages that are due.
func (r *replica) take(t *testing.T) {
	t.Helper()
	sent := make([]string, 3)
	for i := range sent {
		var err error
		if sent[i], err = r.Send(t.Context(), newMessage()); err != nil {
			t.Fatal(err)
		}
	}
	r.Exec(t, `UPDATE messages SET due_at = now() WHERE id = ANY ($1)`, sent)
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		taken, err := takeDue(t.Context(), tx, []ration{{project, len(sent) + 1}}, parking{deliveries: 9, window: time.Hour})
		if len(taken) != len(sent) {
			t.Errorf("took %d messages, want %d", len(taken), len(sent))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
