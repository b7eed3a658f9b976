package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// manyRuns makes 2,000 open runs that each have an invocation that fails, 20 steps of which the last one is open and
// has a message, a hook and a sleep.
func manyRuns(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := testdb.Connect(t, testdb.Indexed(t))
	for _, sql := range []string{
		`INSERT INTO deployments (project, id, url) VALUES ('default', 'shop', 'http://shop.test')`,
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, driver, last_seq, created_at,
				updated_at, started_at)
			SELECT 'wrun_' || i, 'default', 'shop', 'order', 'running', 6, 'server', 25, date_trunc('ms', now()), now() - interval '1 h', now()
			FROM generate_series(1, $1) i`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at,
				due_at, last_error, delivery_count)
			SELECT 'msg_' || work || i, 'default', '', 'shop', 'wrun_' || i, work, CASE work WHEN 'step' THEN 's20' ELSE '' END,
				'', '', now() + interval '1 d', now() + interval '1 h', 'oops', 2
			FROM generate_series(1, $1) i, unnest('{run,step}'::text[]) work`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
			SELECT 'wrun_' || i, 's' || s, 'charge', CASE s WHEN 20 THEN 'pending' ELSE 'completed' END, 1, 6, s, now(), now(),
				CASE WHEN s < 20 THEN now() END
			FROM generate_series(1, $1) i, generate_series(1, 20) s`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			SELECT 'wrun_' || i, 'h', 'default', 't' || i, false, 6, 21, now() FROM generate_series(1, $1) i`,
		`INSERT INTO waits (run_id, id, project, status, spec_version, resume_at, created_at, updated_at)
			SELECT 'wrun_' || i, 'w', 'default', 'waiting', 6, now() + interval '1 h', now(), now()
			FROM generate_series(1, $1) i`,
		`INSERT INTO events (run_id, seq, project, type, correlation_id, spec_version, created_at, data)
			SELECT 'wrun_' || i, 21, 'default', 'hook_created', 'h', 6, now(), '{}' FROM generate_series(1, $1) i`,
		`VACUUM ANALYZE`,
	} {
		if _, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "$1", "2000")); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// TestReasonsOfAPageReadLittle: what a page of 100 runs reads does not depend on how many runs there are. No statement
// reads a whole table ([testdb.Indexed]), and each touches a few blocks for each run.
func TestReasonsOfAPageReadLittle(t *testing.T) {
	t.Parallel()
	pool := manyRuns(t)
	f := &findings{extent: briefly, project: entities.DefaultProject, of: map[entities.RunID]*Facts{}}
	var ids []entities.RunID
	var steps []string
	for i := range 100 {
		id := entities.RunID(fmt.Sprintf("wrun_%d", 1+i*19))
		facts := &Facts{Run: entities.Run{ID: id}}
		ids, f.of[id], f.open = append(ids, id), facts, append(f.open, facts)
		f.ids, f.deployments, steps = append(f.ids, string(id)), append(f.deployments, "shop"), append(steps, "s20")
	}
	for name, query := range map[string]struct {
		sql  string
		args []any
		most int // blocks for each run
	}{
		"work of runs":     {workOfRunsSQL, []any{0, f.ids, 20}, 20},
		"messages of apps": {messagesOfAppsSQL, []any{0, f.ids, f.deployments, f.project, 10}, 4},
		"steps":            {openStepsSQL, []any{f.ids, f.awaited(), 10, 1000}, 30},
		"hooks":            {openHooksSQL, []any{f.ids, 10}, 12},
		"waits":            {openWaitsSQL, []any{f.ids, 10}, 6},
		"work of steps":    {workOfStepsSQL, []any{0, f.ids, steps}, 20},
	} {
		if got := testdb.Blocks(t, pool, query.sql, query.args...) / len(ids); got > query.most {
			t.Errorf("%s: %d blocks touched for each run, want at most %d", name, got, query.most)
		}
	}
	list, err := OfMany(t.Context(), pool, entities.DefaultProject, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if e := list[id]; len(e.Reasons) != 4 || e.Reasons[0].Kind != FunctionFails || e.Reasons[1].StepID != "s20" {
			t.Fatalf("%s: got %+v, want an invocation and a step that fail, a hook and a sleep", id, e)
		}
	}
}

// TestLaterPartsCountInLists: the first reason of a run in a list may be that of a later step.
func TestLaterPartsCountInLists(t *testing.T) {
	t.Parallel()
	pool := manyRuns(t)
	const id entities.RunID = "wrun_7"
	for _, sql := range []string{
		`UPDATE steps SET completed_at = NULL, status = 'pending' WHERE run_id = $1 AND id = 's1'`,
		`UPDATE messages SET parked_at = now() WHERE run_id = $1 AND work = 'step'`,
	} {
		if _, err := pool.Exec(t.Context(), sql, id); err != nil {
			t.Fatal(err)
		}
	}
	list, err := OfMany(t.Context(), pool, entities.DefaultProject, []entities.RunID{id})
	if err != nil {
		t.Fatal(err)
	}
	reasons := list[id].Reasons
	if first := reasons[0]; first.Kind != Parked || first.StepID != "s20" {
		t.Errorf("got %+v first, want step s20, which is parked", first)
	}
	if !slices.ContainsFunc(reasons, func(r Reason) bool { return r.StepID == "s1" }) {
		t.Errorf("got %+v, want one of the first step too", reasons)
	}
}
