package overview

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/coalesce"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const home = entities.DefaultProject

// fixture is a database of its own, in which rows are written by hand. Its time is that of the database.
type fixture struct {
	*Reader
	pool *pgxpool.Pool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := testdb.Connect(t, testdb.Indexed(t))
	f := &fixture{NewReader(pool, stats.NewReader(pool, time.Now), admin.NewSigningKeys(pool, time.Now), time.Now), pool}
	f.share(0)
	f.exec(t, `INSERT INTO projects (name) VALUES ('other')`)
	f.exec(t, `INSERT INTO deployments (project, id, url) VALUES ('default', 'shop', 'http://shop.test')`)
	return f
}

// share sets how long answers are shared.
func (f *fixture) share(lasts time.Duration) {
	f.Reader.attention = coalesce.New[entities.Project, attention](lasts, time.Now)
	f.gauges = coalesce.New[entities.Project, Gauges](lasts, time.Now)
	f.versions = coalesce.New[entities.Project, live.Versions](lasts, time.Now)
}

func (f *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// runs inserts runs with a status, whose IDs begin with the project.
func (f *fixture) runs(t *testing.T, project, status string, n int) {
	t.Helper()
	f.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at,
			updated_at, started_at, completed_at)
		SELECT 'wrun_' || $1 || $2 || i, $1, 'shop', 'order', $2, 6, 4, CASE $2 WHEN 'completed' THEN 4 ELSE 0 END, now(),
			now(), CASE $2 WHEN 'pending' THEN NULL ELSE now() END, CASE $2 WHEN 'completed' THEN now() END
		FROM generate_series(1, $3) i`, project, status, n)
}

// messages inserts messages for a deployment, with more columns. Their IDs begin with the name.
func (f *fixture) messages(t *testing.T, project, deployment, name string, n int, columns, values string) {
	t.Helper()
	f.exec(t, fmt.Sprintf(`
		INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, %s)
		SELECT 'msg_%s' || i, $1, 't', $2, '', '', now() + interval '1 d', %s FROM generate_series(1, $3) i`,
		columns, name, values), project, deployment, n)
}

func (f *fixture) attention(t *testing.T, project entities.Project) []Item {
	t.Helper()
	items, at, err := f.Attention(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(at).Abs(); d > time.Hour {
		t.Errorf("read at %s", at)
	}
	return items
}

// TestAttentionIsShared: many pages of a project that ask within the time cost one read.
func TestAttentionIsShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.share(time.Hour)
	_, first, err := f.Attention(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	f.messages(t, "default", "shop", "parked", 1, `due_at, parked_at`, `now(), now()`)
	var pages sync.WaitGroup
	for range 16 {
		pages.Go(func() {
			if items, at, err := f.Attention(t.Context(), home); err != nil || len(items) > 0 || !at.Equal(first) {
				t.Errorf("got %+v of %s, %v; want the answer of %s", items, at, err, first)
			}
		})
	}
	pages.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Attention(ctx, "other"); err == nil {
		t.Error("it read for a caller that has left")
	}
	f.share(0)
	if items := f.attention(t, home); len(items) != 1 {
		t.Errorf("later: got %+v, want what is parked", items)
	}
}

// TestAttentionIsRead writes what needs attention, and beside each what does not, and what is of another project.
func TestAttentionIsRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, project := range []string{"default", "other"} {
		if got := f.attention(t, entities.Project(project)); len(got) > 0 {
			t.Errorf("nothing needs attention in %s, got %+v", project, got)
		}
	}
	f.exec(t, `UPDATE projects SET paused_at = now() WHERE name = 'default'`)
	f.messages(t, "default", "shop", "parked", 2, `due_at, parked_at`, `now(), now() - interval '1 h'`)
	f.messages(t, "other", "shop", "theirs", 5, `due_at, parked_at`, `now(), now()`)
	f.messages(t, "default", "shop", "away", 3, `due_at, unreached_count, last_error`, `now() + interval '50 s', 4 + i, 'connection refused'`)
	f.messages(t, "default", "blog", "gone", 1, `due_at, unreached_count, last_error`, `now() + interval '50 s', 1, 'not registered'`)
	f.messages(t, "default", "good", "died", 1, `due_at, unreached_count, last_error`, fmt.Sprintf(`now() + interval '5 s', 9, '%s'`, message.ServerDied))
	f.messages(t, "default", "shop", "blocked", 1, `due_at, blocked, run_id, last_error`, `now() + interval '9 m', '{"code": "panic"}', 'wrun_h', 'blocked'`)
	f.messages(t, "default", "shop", "late", 4, `due_at`, `now() - interval '10 m'`)
	f.messages(t, "default", "shop", "later", 4, `due_at`, `now() + interval '10 m'`)
	f.runs(t, "default", "running", 2)
	f.runs(t, "default", "completed", 1)
	f.runs(t, "other", "running", 1)
	f.exec(t, `INSERT INTO run_wakes (run_id, stranded_at)
		SELECT id, now() - CASE id WHEN 'wrun_defaultrunning2' THEN interval '1 m' ELSE interval '1 h' END FROM runs`)
	f.exec(t, `INSERT INTO signing_keys (project, id, slot, secret, created_at)
		SELECT 'default', 'skey_' || i, i, sha256(i::text::bytea), now() - interval '30 d' / i FROM generate_series(1, 2) i`)
	f.exec(t, `INSERT INTO api_keys (id, project, name, role, prefix, hash, created_at, expires_at)
		SELECT 'key_' || i, 'default', 'k', 'read', 'sk_', sha256(i::text::bytea), now() - interval '30 d', now() + i * interval '1 d' - interval '1 h'
		FROM generate_series(3, 9) i`)
	f.exec(t, `INSERT INTO stats (width, project, workflow, metric, label, at, took, count)
		SELECT 1, name, 'refund', 'run_failed', 'shop', date_trunc('minute', now()) - interval '10 m' * i, i, 6
		FROM generate_series(0, 1) i, projects`)
	f.exec(t, `INSERT INTO stats (width, project, workflow, metric, label, at, took, count)
		SELECT 60, 'other', 'refund', 'run_failed', 'shop', date_trunc('hour', now()) - interval '3 d', 1, 6`)
	want := []Item{
		{Kind: Paused, Count: 1},
		{Kind: Parked, Count: 2},
		{Kind: Blocked, Count: 1, Run: "wrun_h"},
		{Kind: Stranded, Count: 1, Run: "wrun_defaultrunning1"},
		{Kind: Unreachable, Count: 3, Deployment: "shop"},
		{Kind: Missing, Count: 1, Deployment: "blog"},
		{Kind: Failing, Count: 12, Workflow: "refund"},
		{Kind: Late, Count: 4},
		{Kind: KeyExpiring, Count: 5},
		{Kind: TwoSigningKeys, Count: 2},
	}
	got := f.attention(t, home)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(&time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, i := range got {
		if sinceKnown := i.Since != nil || i.Until != nil; sinceKnown != (i.Kind != Blocked && i.Kind != Unreachable && i.Kind != Missing && i.Kind != Failing) {
			t.Errorf("%s: since %v, until %v", i.Kind, i.Since, i.Until)
		}
	}
	if diff := cmp.Diff([]Item{{Kind: Parked, Count: 5}, {Kind: Stranded, Count: 1, Run: "wrun_otherrunning1"}}, f.attention(t, "other"),
		cmpopts.IgnoreTypes(&time.Time{})); diff != "" {
		t.Errorf("of the other project, whose runs failed half as often before (-want +got):\n%s", diff)
	}
}

// TestBacklogHidesNoOutage: a deployment that cannot be reached needs attention also if many messages for another one
// wait.
func TestBacklogHidesNoOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.messages(t, "default", "shop", "due", MaxCount+1, `due_at`, `now() - interval '1 s'`)
	f.messages(t, "default", "blog", "away", 1, `due_at, unreached_count, last_error`, `now() + interval '50 s', 9, 'connection refused'`)
	f.exec(t, `INSERT INTO deployments (project, id, url) VALUES ('default', 'blog', 'http://127.0.0.1:1')`)
	want := []Item{{Kind: Unreachable, Count: 1, Deployment: "blog"}}
	if diff := cmp.Diff(want, f.attention(t, home), cmpopts.IgnoreTypes(&time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGauges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.runs(t, "default", "pending", 2)
	f.runs(t, "default", "running", 3)
	f.runs(t, "default", "completed", 4)
	f.runs(t, "other", "running", 5)
	for i, m := range []struct{ columns, values string }{
		{`due_at`, `now() - i * interval '1 m'`},
		{`due_at, ticket`, `now() + interval '1 m', 1`},
		{`due_at, lease`, `now() + interval '1 m', 'rh_' || i`},
		{`due_at`, `now() + interval '1 m'`},
		{`due_at, last_error, ticket`, `now() + interval '1 m', 'busy', 3`},
		{`due_at, parked_at`, `now(), now()`},
	} {
		f.messages(t, "default", "shop", fmt.Sprint(i), i+1, m.columns, m.values)
	}
	f.messages(t, "other", "shop", "theirs", 9, `due_at`, `now()`)
	got, err := f.Gauges(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if got.OldestDue == nil || got.At.Sub(*got.OldestDue) < time.Minute {
		t.Errorf("oldest due: %v at %v", got.OldestDue, got.At)
	}
	want := Gauges{Pending: 2, Running: 3, Due: 3, Leased: 3, Delayed: 4, Retrying: 5, Parked: 6}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(&time.Time{}, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOverviewReadsABoundedPart counts the blocks that the statements touch when there are 11,000 delayed messages and
// as many open runs, and nothing needs attention. Indexed fails the test if a table is scanned.
func TestOverviewReadsABoundedPart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.messages(t, "default", "shop", "later", 11_000, `due_at`, `now() + interval '1 h'`)
	f.runs(t, "default", "running", 11_000)
	f.exec(t, `INSERT INTO stats (width, project, workflow, metric, label, at, took, count)
		SELECT 1, 'default', 'order', metric, 'shop', date_trunc('minute', now()) - interval '1 m' * i, took, 1
		FROM generate_series(1, 2880) i, generate_series(1, 10) took, unnest('{run_created,run_started,run_completed}'::text[]) metric`)
	f.exec(t, `VACUUM ANALYZE`)
	for name, query := range map[string]struct {
		sql  string
		args []any
		most int
	}{
		"parked":    {parkedSQL, []any{home, MaxCount}, 10},
		"blocked":   {blockedSQL, []any{home, MaxCount}, 10},
		"stranded":  {strandedSQL, []any{home, MaxCount, strandedFor}, 10},
		"unreached": {unreachedSQL, []any{home, MaxGauge, notUnreached()}, 10},
		"due":       {dueSQL, []any{home, MaxCount}, 10},
		"versions":  {versionsSQL, []any{home, 100}, 60},
		"gauges":    {gaugesSQL, []any{home, 100}, 60}, // 100 of 11,000 messages and runs
	} {
		if blocks := testdb.Blocks(t, f.pool, query.sql, query.args...); blocks > query.most {
			t.Errorf("%s: %d blocks touched, want at most %d", name, blocks, query.most)
		}
	}
	g, err := f.Gauges(t.Context(), home)
	if err != nil || !g.Capped || g.Running != MaxGauge || g.Delayed != MaxGauge {
		t.Errorf("got %+v, %v; want counts that stop at the limit", g, err)
	}
}
