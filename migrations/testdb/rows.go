package testdb

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Rows reads and writes the rows of a database for a test, which fails if that does.
type Rows struct{ pool *pgxpool.Pool }

// In returns the rows of the pool's database.
func In(pool *pgxpool.Pool) Rows { return Rows{pool} }

// Exec executes a statement.
func (r Rows) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := r.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Scan reads one row into one or more variables.
func (r Rows) Scan(t testing.TB, sql string, args []any, into ...any) {
	t.Helper()
	if err := r.pool.QueryRow(t.Context(), sql, args...).Scan(into...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Count reads one number.
func (r Rows) Count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	r.Scan(t, sql, args, &n)
	return n
}

// Want fails the test unless a statement reads the number. What says what it counts.
func (r Rows) Want(t testing.TB, what string, want int, sql string, args ...any) {
	t.Helper()
	if n := r.Count(t, sql, args...); n != want {
		t.Errorf("%s: got %d, want %d", what, n, want)
	}
}

// Clear deletes all rows about runs and messages, but keeps the pages of their tables: plans that are made then are for
// empty tables. It reads no index, so that the statistics of indexes count what the test reads. The pool must have a
// single connection.
func (r Rows) Clear(t testing.TB) {
	t.Helper()
	r.Exec(t, `SET session_replication_role = replica`) // or foreign keys would delete the rows through indexes
	for _, table := range []string{"runs", "hooks", "steps", "waits", "messages", "message_keys"} {
		r.Exec(t, `DELETE FROM `+table+` WHERE ctid >= '(0,0)'`) // a TID scan, which the index statistics do not count
		r.Exec(t, `VACUUM (ANALYZE, TRUNCATE false) `+table)
	}
	r.Exec(t, `SET session_replication_role = origin`)
}

// AddRuns adds open runs of the deployment. Each has a hook, a step, a wait, work leased by the holder, a delayed
// message and a key. Like [Rows.Clear], it reads no index.
func (r Rows) AddRuns(t testing.TB, project, deployment string, runs int, holder string) {
	t.Helper()
	r.Exec(t, `SET session_replication_role = replica`)
	for _, insert := range []string{
		`runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver, created_at,
				updated_at)
			SELECT run, $1, $2, 'order', 'running', 4, 1, 0, 'server', now(), now()`,
		`hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT run, run, 'other', run, false, 4, 2, now()`, // finding a hook may read all hooks of its project
		`steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			SELECT run, 'a', 'a', 'pending', 0, 4, 3, now(), now()`,
		`waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
			SELECT run, 'w', 'waiting', 4, now() + interval '1 h', now(), now()`,
		`messages (id, project, topic, deployment_id, run_id, work, content_type, body, expires_at, due_at, lease, holder)
			SELECT 'msg_work_' || run, $1, 'order', $2, run, 'run', '', '', now() + interval '1 d', now() + interval '1 h',
				run, $4`,
		`message_keys (project, deployment_id, topic, key, message_id, expires_at)
			SELECT $1, $2, '__wkf_workflow_order', 'step_' || run, 'msg_' || run, now() + interval '1 d'`,
		`messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
			SELECT 'msg_' || run, $1, 'order', $2, run, '', '', now() + interval '1 d', now() + interval '1 h'`,
	} {
		// The WITH gives each argument a type, since not every statement uses all four.
		r.Exec(t, `WITH given AS (SELECT $1::text, $2::text, $3::integer, $4::text) INSERT INTO `+insert+`
			FROM (SELECT 'wrun_' || n FROM generate_series(1, $3) n) AS crowd (run)`, project, deployment, runs, holder)
	}
	r.Exec(t, `SET session_replication_role = origin`)
}
