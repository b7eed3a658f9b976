package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// database is a test's own database.
type database struct {
	testdb.Rows

	pool *pgxpool.Pool
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	pool := testdb.Pool(t)
	return &database{testdb.In(pool), pool}
}

// noQueue accepts messages and drops them.
type noQueue struct{ Queue }

func (noQueue) Enqueue(
	context.Context, pgx.Tx, *pgx.Batch, []message.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	return nil, func(error) {}, nil
}

// TestLostKeysAreFoundByTheirIndex: even a plan made while the table had few keys must not read all keys of a
// deployment.
func TestLostKeysAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	conn, err := newDatabase(t).pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`VACUUM ANALYZE messages`, `SET plan_cache_mode = force_generic_plan`,
		`PREPARE planned (text, text, text, text) AS ` + lostKeys,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE planned ('', '', '', '')`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	fullKey := regexp.MustCompile(`Index Cond: .*project = .*deployment_id = .*topic = .*key >= .*key < `)
	if !fullKey.MatchString(plan) {
		t.Errorf("the plan does not look keys up by all columns of their index:\n%s", plan)
	}
}

// TestSweepingScansNoTable explains the sweeper's queries on many runs, driven by clients and by the server.
func TestSweepingScansNoTable(t *testing.T) {
	t.Parallel()
	r := newDatabase(t)
	fill(t, r, 50_000)
	scansNoTable(t, r)
	r.Exec(t, `UPDATE runs SET driver = 'server', deadline = now() + interval '1 d'`)
	r.Exec(t, `UPDATE messages SET work = 'run'`)
	r.Exec(t, `UPDATE steps SET status = 'running', completed_at = NULL WHERE run_id < 'wrun_0000020000'`)
	r.Exec(t, `ANALYZE`)
	scansNoTable(t, r)
}

func scansNoTable(t *testing.T, r *database) {
	t.Helper()
	for name, q := range map[string]struct {
		sql  string
		args []any
	}{
		"open runs": {
			`SELECT id FROM runs WHERE completed_at IS NULL AND id > $1 ORDER BY id LIMIT $2`, []any{"wrun_0000040000", 1000},
		},
		"stranded runs": {findStrandedSQL, []any{r.open(t, 1000), sweepQuiet, sweepRepairs}},
	} {
		plan := r.explain(t, q.sql, q.args...)
		for _, table := range []string{"runs", "messages", "events", "steps", "waits", "hooks"} {
			if strings.Contains(plan, "Seq Scan on "+table) {
				t.Errorf("%s: the plan scans %s:\n%s", name, table, plan)
			}
		}
	}
}

// TestLongLogsAreReadOnceAtMost bounds the blocks that the sweeper reads for waiting runs with long logs. After a
// fan-out, most events are results of steps that follow the last action of the workflow.
func TestLongLogsAreReadOnceAtMost(t *testing.T) {
	t.Parallel()
	const runs, length = 20, 3000
	for name, tt := range map[string]struct {
		hook  bool
		limit int // blocks per run
	}{"without hooks": {false, 30}, "with hooks": {true, 300}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDatabase(t)
			fanOut(t, r, runs, length, tt.hook)
			plan := r.explain(t, findStrandedSQL, r.all(t), sweepQuiet, sweepRepairs)
			got := blocks(t, plan) / runs
			if got > tt.limit {
				t.Errorf("read %d blocks per run, want at most %d:\n%s", got, tt.limit, plan)
			}
		})
	}
}

// blocks returns the number of blocks that the plan's execution has read.
func blocks(t testing.TB, plan string) int {
	t.Helper()
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("no count of blocks in:\n%s", plan)
	}
	hit, err := strconv.Atoi(found[1])
	read, _ := strconv.Atoi(found[2]) // absent if it is 0
	if err != nil || hit+read == 0 {
		t.Fatalf("got %d blocks and error %v in:\n%s", hit+read, err, plan)
	}
	return hit + read
}

// fanOut inserts runs whose logs create steps, then have the steps' results, and end with a wait until tomorrow. If the
// runs have a hook, a delivery has seen half of each log.
func fanOut(t testing.TB, r *database, runs, length int, hook bool) {
	t.Helper()
	id := `'wrun_' || lpad(i::text, 10, '0')`
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, started_at)
		SELECT `+id+`, 'default', 'dpl_test', 'w', 'running', 3, $2, 0,
			now() - interval '1 h', now() - interval '1 h', now()
		FROM generate_series(1, $1) i`, runs, length)
	r.Exec(t, `
		INSERT INTO waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
		SELECT `+id+`, 'wait_1', 'waiting', 3, now() + interval '1 d', now(), now() FROM generate_series(1, $1) i`, runs)
	r.Exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
		SELECT 'default', `+id+`, seq, CASE WHEN seq <= $2 / 3 THEN 'step_created' WHEN seq < $2 THEN 'step_completed'
			ELSE 'wait_created' END, 'step_' || seq, 3, now(), '{}'
		FROM generate_series(1, $1) i, generate_series(1, $2) seq`, runs, length)
	if hook {
		r.Exec(t, `
			INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT `+id+`, 'hook_1', 'default', i::text, false, 3, 3, now() FROM generate_series(1, $1) i`, runs)
		r.Exec(t, `INSERT INTO run_wakes (run_id, acked_seq) SELECT id, $1 / 2 FROM runs`, length)
	}
	r.Exec(t, `ANALYZE`)
}

// fill inserts n runs. Every second one has ended; of the others, half have a delayed message and half wait for a hook.
func fill(t testing.TB, r *database, n int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, started_at, completed_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'default', 'dpl_test', 'w',
			CASE i % 2 WHEN 0 THEN 'completed' ELSE 'running' END, 3, 4, CASE i % 2 WHEN 0 THEN 4 ELSE 0 END,
			now() - interval '1 h', now() - interval '1 h', now(), CASE i % 2 WHEN 0 THEN now() END
		FROM generate_series(1, $1) i`,
		`INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data)
		SELECT 'default', 'wrun_' || lpad(i::text, 10, '0'), seq, 'run_started', 3, now(), '{}'
		FROM generate_series(1, $1, 2) i, generate_series(1, 4) seq`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
		SELECT 'msg_' || lpad(i::text, 10, '0'), 'default', 'w', 'dpl_test', 'wrun_' || lpad(i::text, 10, '0'), '', '',
			now(), now() + interval '1 d'
		FROM generate_series(1, $1, 4) i`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'hook_1', 'default', i::text, false, 3, 3, now()
		FROM generate_series(3, $1, 4) i`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'step_1', 's', 'completed', 1, 3, 2, now(), now(), now()
		FROM generate_series(1, $1, 2) i`,
		`INSERT INTO waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
		SELECT 'wrun_' || lpad(i::text, 10, '0'), 'wait_1', 'waiting', 3, now() + interval '1 d', now(), now()
		FROM generate_series(1, $1, 4) i`,
	} {
		r.Exec(t, sql, n)
	}
	r.Exec(t, `ANALYZE`)
}

// open returns the IDs of up to n runs that have not ended.
func (d *database) open(t testing.TB, n int) []string {
	t.Helper()
	var ids []string
	d.Scan(t, `SELECT array_agg(id) FROM (
		SELECT id FROM runs WHERE completed_at IS NULL ORDER BY id OFFSET (SELECT count(*) / 4 FROM runs) LIMIT $1) o`,
		[]any{n}, &ids)
	return ids
}

// all returns the IDs of all runs.
func (d *database) all(t testing.TB) []string {
	t.Helper()
	var ids []string
	d.Scan(t, `SELECT array_agg(id ORDER BY id) FROM runs`, nil, &ids)
	return ids
}

// explain executes the statement and returns its plan with the buffers read.
func (d *database) explain(t testing.TB, sql string, args ...any) string {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return plan.String()
}

// BenchmarkSweep measures a pass over a million runs, half of them open and none stranded.
func BenchmarkSweep(b *testing.B) {
	r := newDatabase(b)
	fill(b, r, 1_000_000)
	r.Exec(b, `VACUUM ANALYZE`)
	b.Logf("open runs:\n%s", r.explain(b,
		`SELECT id FROM runs WHERE completed_at IS NULL AND id > $1 ORDER BY id LIMIT $2`, "wrun_0000400000", sweepBatch))
	b.Logf("stranded runs:\n%s", r.explain(b, findStrandedSQL, r.open(b, sweepBatch), sweepQuiet, sweepRepairs))
	s := NewSweeper(r.pool, noQueue{}, slog.New(slog.DiscardHandler))
	s.Interval = 0
	for b.Loop() {
		if woken, err := s.Sweep(b.Context()); err != nil || len(woken) > 0 {
			b.Fatalf("got %v, %v", woken, err)
		}
	}
	b.ReportMetric(float64(sweepBatch), "runs/op")
}
