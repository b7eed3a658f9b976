package store

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestOpenListsLookAtFewRows: a page among many waits of other projects reads none of them, also by a plan for any project.
// One among many waits that servers of the previous version wrote, or hooks of other workflows, ends after 1,000 of them,
// and the pages together have all.
func TestOpenListsLookAtFewRows(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	const n = 20 * openScan
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at, updated_at)
		SELECT 'wrun_' || lpad(i::text, 9, '0'), CASE i WHEN 1500 THEN 'home' ELSE 'other' END, 'dpl_1',
			CASE i WHEN 1500 THEN 'rare' ELSE 'w' END, 'running', 2, 2, 0, now(), now() FROM generate_series(1, $1::int) i`,
		`INSERT INTO waits (run_id, id, project, status, spec_version, resume_at, created_at, updated_at)
		SELECT 'wrun_' || lpad(i::text, 9, '0'), 'w:' || i, CASE i WHEN 1500 THEN 'home' ELSE 'other' END, 'waiting', 2,
			now() + i * interval '1 s', now(), now()
		FROM generate_series(1, $1::int) i`,
		`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
		SELECT 'wrun_' || lpad(i::text, 9, '0'), 'h', 'home', 't' || lpad(i::text, 9, '0'), false, 2, 3,
			date_trunc('milliseconds', now()) + i * interval '1 s' FROM generate_series(1, $1::int) i`,
	} {
		if _, err := m.Exec(t.Context(), sql, n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Exec(t.Context(), `ANALYZE runs; ANALYZE waits; ANALYZE hooks`); err != nil {
		t.Fatal(err)
	}
	waits := pages(t, m, 1, func(p pg.Page) ([]OpenWait, string, error) { return OpenWaits(t.Context(), m, home, "", p) })
	if len(waits) != 1 || waits[0].ID != "w:1500" || waits[0].WorkflowName != "rare" {
		t.Errorf("got %+v, want the wait of the project", waits)
	}
	if n := m.explainGeneric(t).blocks(); n > 20 {
		t.Errorf("%d blocks touched", n)
	}
	for name, tt := range map[string]struct {
		filter HookFilter
		page   int // that has the hook
	}{
		"created": {HookFilter{WorkflowName: "rare"}, 2}, "token": {HookFilter{WorkflowName: "rare", TokenPrefix: "t"}, 2},
		"one token": {HookFilter{TokenPrefix: "t000001500"}, 1},
		"old":       {HookFilter{WorkflowName: "rare", CreatedUntil: time.Now().Add(time.Hour)}, 2},
	} {
		hooks := pages(t, m, tt.page, func(p pg.Page) ([]OpenHook, string, error) {
			return OpenHooks(t.Context(), m, home, tt.filter, time.Now(), p)
		})
		if len(hooks) != 1 || hooks[0].Token != "t000001500" {
			t.Errorf("%s: got %+v, want one hook", name, hooks)
		}
	}
	if _, err := m.Exec(t.Context(), `UPDATE hooks SET token = 'approval_1' WHERE token = 't000001500'`); err != nil {
		t.Fatal(err)
	}
	for _, run := range []entities.RunID{"", "wrun_000001500"} {
		hooks := pages(t, m, 1, func(p pg.Page) ([]OpenHook, string, error) {
			return OpenHooks(t.Context(), m, home, HookFilter{Approvals: true, RunID: run}, time.Now(), p)
		})
		if len(hooks) != 1 || hooks[0].Token != "approval_1" {
			t.Errorf("got %+v, want the approval", hooks)
		}
		if n := m.explainGeneric(t).blocks(); n > 40 {
			t.Errorf("%d blocks touched to find an approval among other hooks", n)
		}
	}
}

// pages reads pages of a list up to the first one that is not empty, which must be the given one.
func pages[T any](t *testing.T, m *meter, want int, list func(pg.Page) ([]T, string, error)) (items []T) {
	t.Helper()
	p := pg.Page{Limit: 10}
	for n := 1; ; n++ {
		items, next, err := list(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) > 0 || next == "" {
			if n != want {
				t.Errorf("found on page %d, want %d", n, want)
			}
			return items
		}
		if blocks := m.explain(t).blocks(); blocks > 6*openScan { // each row is looked up with its run
			t.Errorf("%d blocks touched", blocks)
		}
		p.Cursor = next
	}
}

func TestCursorsOfOtherListsAreNoneOfWaits(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	for _, cursor := range []string{"x", "1:wrun_1", "1:wrun_1/", "1:/w", "-9223372036854775808:wrun_1/w"} {
		_, _, err := OpenWaits(t.Context(), pool, home, "", pg.Page{Limit: 1, Cursor: cursor})
		if !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("cursor %q: got %v, want ErrInvalid", cursor, err)
		}
	}
}
