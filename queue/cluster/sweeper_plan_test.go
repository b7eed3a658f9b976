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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// database is one of a test's own.
type database struct{ pool *pgxpool.Pool }

func newDatabase(t testing.TB) *database {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &database{pool}
}

func (r *database) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := r.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// scan reads one row into one or more variables.
func (r *database) scan(t testing.TB, sql string, args []any, into ...any) {
	t.Helper()
	if err := r.pool.QueryRow(t.Context(), sql, args...).Scan(into...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// idle is a queue into which nothing is put.
type idle struct{ Queue }

func (idle) Enqueue(
	context.Context, pgx.Tx, *pgx.Batch, []entities.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	return nil, func(error) {}, nil
}

// TestLostKeysAreFoundByTheirIndex: a statement planned when there were few keys must not read all of a deployment.
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
	byKey := regexp.MustCompile(`Index Cond: .*project = .*deployment_id = .*topic = .*key >= .*key < `)
	if !byKey.MatchString(plan) {
		t.Errorf("a key is not found by all that it has:\n%s", plan)
	}
}

// TestSweepingScansNoTable has what the sweeper asks explained, on a table of many runs, whoever continues them.
func TestSweepingScansNoTable(t *testing.T) {
	t.Parallel()
	r := newDatabase(t)
	fill(t, r, 50_000)
	scansNoTable(t, r)
	r.exec(t, `UPDATE runs SET driver = 'server', deadline = now() + interval '1 d'`)
	r.exec(t, `UPDATE messages SET work = 'run'`)
	r.exec(t, `UPDATE steps SET status = 'running', completed_at = NULL WHERE run_id < 'wrun_0000020000'`)
	r.exec(t, `ANALYZE`)
	scansNoTable(t, r)
}

func scansNoTable(t *testing.T, r *database) {
	t.Helper()
	for what, q := range map[string]struct {
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
				t.Errorf("%s: scans %s:\n%s", what, table, plan)
			}
		}
	}
}

// TestLongLogsAreReadOnceAtMost bounds what the sweeper reads of runs with long logs that wait: after a fan-out,
// most of a log are results of steps behind the last thing that the workflow did.
func TestLongLogsAreReadOnceAtMost(t *testing.T) {
	t.Parallel()
	const runs, length = 20, 3000
	for name, tt := range map[string]struct {
		hook  bool
		limit int // of blocks a run
	}{"without hooks": {false, 30}, "with hooks": {true, 300}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDatabase(t)
			fanOut(t, r, runs, length, tt.hook)
			plan := r.explain(t, findStrandedSQL, r.all(t), sweepQuiet, sweepRepairs)
			got := blocks(t, plan) / runs
			if got > tt.limit {
				t.Errorf("read %d blocks a run, want %d at most:\n%s", got, tt.limit, plan)
			}
		})
	}
}

// blocks is how many the whole of a plan has read.
func blocks(t testing.TB, plan string) int {
	t.Helper()
	found := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("no count of blocks in:\n%s", plan)
	}
	hit, err := strconv.Atoi(found[1])
	read, _ := strconv.Atoi(found[2]) // missing when there are none
	if err != nil || hit+read == 0 {
		t.Fatalf("got %d blocks, %v in:\n%s", hit+read, err, plan)
	}
	return hit + read
}

// fanOut makes runs whose logs begin with steps that they created, go on with what came of those, and end with a
// wait until tomorrow. Half of that was heard of by those with a hook.
func fanOut(t testing.TB, r *database, runs, length int, hook bool) {
	t.Helper()
	id := `'wrun_' || lpad(i::text, 10, '0')`
	r.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, started_at)
		SELECT `+id+`, 'default', 'dpl_test', 'w', 'running', 3, $2, 0,
			now() - interval '1 h', now() - interval '1 h', now()
		FROM generate_series(1, $1) i`, runs, length)
	r.exec(t, `
		INSERT INTO waits (run_id, id, status, spec_version, resume_at, created_at, updated_at)
		SELECT `+id+`, 'wait_1', 'waiting', 3, now() + interval '1 d', now(), now() FROM generate_series(1, $1) i`, runs)
	r.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
		SELECT 'default', `+id+`, seq, CASE WHEN seq <= $2 / 3 THEN 'step_created' WHEN seq < $2 THEN 'step_completed'
			ELSE 'wait_created' END, 'step_' || seq, 3, now(), '{}'
		FROM generate_series(1, $1) i, generate_series(1, $2) seq`, runs, length)
	if hook {
		r.exec(t, `
			INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT `+id+`, 'hook_1', 'default', i::text, false, 3, 3, now() FROM generate_series(1, $1) i`, runs)
		r.exec(t, `INSERT INTO run_wakes (run_id, seen_seq) SELECT id, $1 / 2 FROM runs`, length)
	}
	r.exec(t, `ANALYZE`)
}

// fill makes n runs, of which every second has ended; of the others, half wait with a delayed message and
// half for a hook.
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
		r.exec(t, sql, n)
	}
	r.exec(t, `ANALYZE`)
}

// open are some runs that have not ended.
func (r *database) open(t testing.TB, n int) []string {
	t.Helper()
	var ids []string
	r.scan(t, `SELECT array_agg(id) FROM (
		SELECT id FROM runs WHERE completed_at IS NULL ORDER BY id OFFSET (SELECT count(*) / 4 FROM runs) LIMIT $1) o`,
		[]any{n}, &ids)
	return ids
}

// all are all runs.
func (r *database) all(t testing.TB) []string {
	t.Helper()
	var ids []string
	r.scan(t, `SELECT array_agg(id ORDER BY id) FROM runs`, nil, &ids)
	return ids
}

func (r *database) explain(t testing.TB, sql string, args ...any) string {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+sql, args...)
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

// BenchmarkSweep measures a turn over a million runs, half of them open, when nothing is wrong.
func BenchmarkSweep(b *testing.B) {
	r := newDatabase(b)
	fill(b, r, 1_000_000)
	r.exec(b, `VACUUM ANALYZE`)
	b.Logf("open runs:\n%s", r.explain(b,
		`SELECT id FROM runs WHERE completed_at IS NULL AND id > $1 ORDER BY id LIMIT $2`, "wrun_0000400000", sweepBatch))
	b.Logf("stranded runs:\n%s", r.explain(b, findStrandedSQL, r.open(b, sweepBatch), sweepQuiet, sweepRepairs))
	s := NewSweeper(r.pool, idle{}, slog.New(slog.DiscardHandler))
	s.Interval = 0
	for b.Loop() {
		if woken, err := s.Sweep(b.Context()); err != nil || len(woken) > 0 {
			b.Fatalf("got %v, %v", woken, err)
		}
	}
	b.ReportMetric(float64(sweepBatch), "runs/op")
}
