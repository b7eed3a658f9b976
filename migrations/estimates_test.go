package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestPlannerEstimatesRowsPerRunInGrowingTables checks that statistics from a time with few runs do not make Postgres
// overestimate the number of rows per run, and neither do those from a time when all messages were of schedules. It would
// plan each statement about a run anew.
func TestPlannerEstimatesRowsPerRunInGrowingTables(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	fill := func(from, to int) {
		t.Helper()
		exec(`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
				created_at, updated_at)
			SELECT 'wrun_' || i, 'default', 'd', 'w', 'running', 2, 12, 0, now(), now() FROM generate_series($1::int, $2) i`, from, to)
		exec(`INSERT INTO events (run_id, seq, type, correlation_id, spec_version, created_at, data, project)
			SELECT 'wrun_' || i, s, 'step_created', 'step_' || s, 2, now(), '{}', 'default'
			FROM generate_series($1::int, $2) i, generate_series(1, 12) s`, from, to)
		exec(`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			SELECT 'wrun_' || i, 'step_' || s, 'n', 'pending', 0, 2, s, now(), now()
			FROM generate_series($1::int, $2) i, generate_series(1, 12) s`, from, to)
	}
	fill(1, 10)
	exec(`INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, work, subject)
		SELECT 'msg_' || i, 'default', 's', '', '', '', 'infinity', now(), 'schedule', 'sched_' || i
		FROM generate_series(1, 1000) i`)
	exec(`ANALYZE events, steps, messages`)
	fill(11, 2000)
	exec(`SET plan_cache_mode = force_generic_plan`)
	for table, perRun := range map[string]float64{"events": 12, "steps": 12, "messages": 2} {
		exec(`PREPARE of_` + table + `(text) AS SELECT FROM ` + table + ` WHERE run_id = $1`)
		var plan []struct {
			Plan struct {
				Rows float64 `json:"Plan Rows"`
			}
		}
		err := conn.QueryRow(t.Context(), `EXPLAIN (FORMAT JSON) EXECUTE of_`+table+`('wrun_7')`,
			pgx.QueryExecModeSimpleProtocol).Scan(&plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan[0].Plan.Rows; got > 2*perRun {
			t.Errorf("Postgres expects %.0f rows per run in %s, which has %.0f", got, table, perRun)
		}
	}
}
