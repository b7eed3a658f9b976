package stats

import "testing"

// TestManyNamesShareOneCount: names that are made of data do not fill the table, however few of them a batch has. Names
// that were there before are counted as ever.
func TestManyNamesShareOneCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.batch = 300
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const names = maxNames + 10
	insert := func(prefix, workflow string, n int) { // runs with a step each
		t.Helper()
		exec(`
			INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at, driver)
			SELECT 'wrun_' || $1 || i, 'default', 'shop', replace($2, '#', i::text), 'running', 6, 2, now(), now(), 'server'
			FROM generate_series(1, $3::int) i`, prefix, workflow, n)
		exec(`
			INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
			SELECT id, 's', 'charge ' || id, 'completed', 1, 6, 2, now(), now(), now() FROM runs WHERE id LIKE 'wrun_' || $1 || '%'`, prefix)
		exec(`
			INSERT INTO events (run_id, seq, project, type, correlation_id, spec_version, created_at, data)
			SELECT id, seq, project, CASE seq WHEN 1 THEN 'run_created' ELSE 'step_completed' END, CASE seq WHEN 1 THEN '' ELSE 's' END,
				6, created_at, '{}' FROM runs, generate_series(1, 2) seq WHERE id LIKE 'wrun_' || $1 || '%'`, prefix)
		f.follow(t)
	}
	insert("a", "order", names)
	insert("b", "w#", names)
	got := f.stored(t)
	want := map[[3]string]int64{
		{"run_created", "order", "shop"}:           names,
		{"run_created", "w1", "shop"}:              1,
		{"run_created", others, others}:            11,
		{"step_completed", "order", others}:        10,
		{"step_completed", others, others}:         names,
		{"step_completed", "order", "charge none"}: 0,
	}
	for key, n := range want {
		if got[key] != n {
			t.Errorf("%q: got %d, want %d", key, got[key], n)
		}
	}
	if most := 2*maxNames + 3; len(got) != most {
		t.Errorf("got %d names, want %d", len(got), most)
	}
}
