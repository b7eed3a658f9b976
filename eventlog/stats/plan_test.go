package stats

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestFollowingReadsOnlyNewEvents counts the blocks that the statements touch when 60,000 events are counted and ten
// are not. The events fill more than a thousand blocks.
func TestFollowingReadsOnlyNewEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := f.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		SELECT 'wrun_' || i, 'default', 'shop', 'order', 'running', 6, 20, now(), now() FROM generate_series(1, 3000) i`)
	exec(`
		INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
		SELECT 'wrun_' || i, 's' || seq, 'charge', 'completed', 1, 6, seq, now(), now(), now()
		FROM generate_series(1, 3000) i, generate_series(2, 20) seq`)
	exec(`
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT 'default', 'wrun_' || i, seq, CASE WHEN seq = 1 THEN 'run_created' ELSE 'step_completed' END,
			CASE WHEN seq > 1 THEN 's' || seq ELSE '' END, 6, now(), '{}', i::text::xid8
		FROM generate_series(1, 3000) i, generate_series(1, 20) seq`)
	exec(`INSERT INTO stats_progress (project, xid, run_id, seq) VALUES ('default', '3000', 'wrun_3000', 10)`)
	exec(`ANALYZE`)
	const most = 200 // a new event touches four: its own, its entry in the index, its run and its step
	for name, query := range map[string]struct {
		sql  string
		args []any
	}{
		"find new events": {projectsWithNewEvents, []any{countedTypes}},
		"count":           {countNext, []any{home, f.batch, countedTypes, maxNames, others}},
		"progress":        {progressOf, []any{home, countedTypes, noXID}},
	} {
		if blocks := testdb.Blocks(t, f.pool, query.sql, query.args...); blocks > most {
			t.Errorf("%s: %d blocks touched, want at most %d", name, blocks, most)
		}
	}
}

// TestRecentFailuresReadsFewMinutes counts the blocks touched when there are 65,000 counts of two days.
func TestRecentFailuresReadsFewMinutes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.pool.Exec(t.Context(), `
		INSERT INTO stats (width, project, workflow, metric, label, at, took, count)
		SELECT 1, 'default', 'order', metric, 'shop', date_trunc('minute', now()) - interval '1 m' * i, took, 1
		FROM generate_series(1, 2 * 24 * 60) i, generate_series(1, 10) took,
			unnest('{run_created,run_started,run_completed,run_failed}'::text[]) metric
		WHERE metric <> 'run_failed' OR took < 3`); err != nil {
		t.Fatal(err)
	}
	if _, err := f.pool.Exec(t.Context(), `VACUUM ANALYZE stats`); err != nil {
		t.Fatal(err)
	}
	// 120 counts of the last hour, and the index is descended for 14 hours.
	const most = 200
	now := time.Now()
	if blocks := testdb.Blocks(t, f.pool, recentFailures, home, now.Add(-time.Hour), usualHours(now)); blocks > most {
		t.Errorf("%d blocks touched, want at most %d", blocks, most)
	}
}
