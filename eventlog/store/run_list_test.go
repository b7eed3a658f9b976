package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

// insertRuns inserts runs with their attribute rows.
func insertRuns(t testing.TB, pool *pgxpool.Pool, runs []entities.Run) {
	t.Helper()
	var b pgx.Batch
	for _, r := range runs {
		InsertRun(pg.Batch{Batch: &b}, &r)
		WriteAttributes(pg.Batch{Batch: &b}, nil, &r)
	}
	if err := pool.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
}

// manyRuns returns runs in list order, with few distinct values, so that most filters match some. Three runs each share
// a creation time.
func manyRuns() []entities.Run {
	var runs []entities.Run
	for i := range 120 {
		at := day.Add(time.Duration(i/3) * time.Millisecond)
		r := entities.Run{
			ID: entities.RunID(fmt.Sprintf("wrun_%03d", i)), Project: home, DeploymentID: fmt.Sprintf("dpl_%d", i%4), SpecVersion: 3,
			WorkflowName: []string{"order", "refund", "report"}[i%7%3], Status: runStatuses()[i*i%11%5],
			Attributes: map[string]string{}, LastSeq: 9, CreatedAt: at, UpdatedAt: at,
		}
		if i%2 == 0 {
			r.Attributes["env"] = []string{"prod", "staging"}[i%3%2]
		}
		if i%5 < 2 {
			r.Attributes["plan"] = []string{"free", "pro", ""}[i%4%3]
		}
		if r.Status.Ended() {
			end := at.Add(time.Duration(i*7%11) * time.Millisecond)
			r.EndSeq, r.CompletedAt = 9, &end
			r.UniqueKey = []string{"", "", "key"}[i%3]
		}
		runs = append(runs, r)
	}
	return runs
}

// matches is a naive implementation of the filter.
func matches(f RunFilter, r entities.Run) bool {
	for key, value := range f.Attributes {
		if have, ok := r.Attributes[key]; !ok || have != value {
			return false
		}
	}
	return (f.WorkflowName == "" || r.WorkflowName == f.WorkflowName) &&
		(f.UniqueKey == "" || r.UniqueKey == f.UniqueKey) &&
		(len(f.AnyStatus) == 0 || slices.Contains(f.AnyStatus, r.Status)) &&
		(f.DeploymentID == "" || r.DeploymentID == f.DeploymentID) && contains(f.Created, r.CreatedAt) &&
		(r.CompletedAt == nil && !f.ByEnd && f.Ended == Window{} || r.CompletedAt != nil && contains(f.Ended, *r.CompletedAt))
}

func contains(w Window, at time.Time) bool {
	return (w.From.IsZero() || !at.Before(w.From)) && (w.To.IsZero() || !at.After(w.To))
}

// allPages reads all pages of a list and checks that each but the last is full, unless the list is by attributes and by
// what no index has.
func allPages(t *rapid.T, pool *pgxpool.Pool, f RunFilter, p pg.Page, archived bool) []entities.Run {
	list := ListRuns
	if archived {
		list = ListArchived
	}
	var all []entities.Run
	for range 200 {
		runs, next, err := list(t.Context(), pool, home, f, p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, runs...)
		if next == "" {
			return all
		}
		if len(runs) != p.Limit && (len(f.Attributes) == 0 || f.DeploymentID == "" && f.Ended == Window{} && !archived) {
			t.Fatalf("page of %d runs is not the last, want %d", len(runs), p.Limit)
		}
		p.Cursor = next
	}
	t.Fatal("the list never ends")
	return nil
}

// windows draws a window, whose ends may be open.
func windows(t *rapid.T, name string, w *Window) {
	instants := rapid.Map(rapid.IntRange(-2, 45), func(ms int) time.Time {
		return day.Add(time.Duration(ms) * time.Millisecond)
	})
	if rapid.IntRange(0, 2).Draw(t, name+" has from") == 0 {
		w.From = instants.Draw(t, name+" from")
	}
	if rapid.IntRange(0, 2).Draw(t, name+" has to") == 0 {
		w.To = instants.Filter(func(to time.Time) bool { return !to.Before(w.From) }).Draw(t, name+" to")
	}
}

func TestListRunsReturnsTheMatchingRuns(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	runs := manyRuns()
	insertRuns(t, pool, runs)
	strangers := slices.Clone(runs) // each run has a twin in another project
	for i := range strangers {
		strangers[i].ID += "_stranger"
		strangers[i].Project = stranger
	}
	insertRuns(t, pool, strangers)
	archive(t, pool, `completed_at IS NOT NULL`)
	rapid.Check(t, func(rt *rapid.T) {
		f := RunFilter{
			WorkflowName: rapid.SampledFrom([]string{"", "order", "refund", "none"}).Draw(rt, "workflow"),
			AnyStatus:    rapid.SliceOfNDistinct(rapid.SampledFrom(runStatuses()), 0, 3, rapid.ID).Draw(rt, "statuses"),
			DeploymentID: rapid.SampledFrom([]string{"", "", "dpl_2"}).Draw(rt, "deployment"),
			UniqueKey:    rapid.SampledFrom([]string{"", "", "key"}).Draw(rt, "key"),
			ByEnd:        rapid.Bool().Draw(rt, "by end"),
		}
		windows(rt, "created", &f.Created)
		windows(rt, "ended", &f.Ended)
		if wanted := rapid.MapOfN(rapid.SampledFrom([]string{"env", "plan", "on no run"}),
			rapid.SampledFrom([]string{"prod", "staging", "free", "pro", ""}), 0, 2).Draw(rt, "attributes"); len(wanted) > 0 {
			f.Attributes = wanted
		}
		p := pg.Page{Limit: rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(rt, "limit"), Descending: rapid.Bool().Draw(rt, "descending")}
		archived := rapid.Bool().Draw(rt, "archived")
		f.ByEnd = f.ByEnd && !archived
		var want []entities.Run
		for _, r := range runs {
			if matches(f, r) && (!archived || r.CompletedAt != nil) {
				want = append(want, r)
			}
		}
		if f.ByEnd {
			slices.SortStableFunc(want, func(a, b entities.Run) int { return a.CompletedAt.Compare(*b.CompletedAt) })
		}
		if p.Descending {
			slices.Reverse(want)
		}
		count, err := CountRuns(t.Context(), pool, home, f)
		if err != nil || !f.ByEnd && !archived && (count != RunCount{Count: len(want)}) {
			rt.Fatalf("%+v: counted %+v, want %d; %v", f, count, len(want), err)
		}
		if diff := cmp.Diff(want, allPages(rt, pool, f, p, archived)); diff != "" {
			rt.Fatalf("%+v %+v (-want +got):\n%s", f, p, diff)
		}
	})
}

// TestCursorOfAnotherWindowDoesNotLeaveTheWindow: a cursor before the window's near end is ignored.
func TestCursorOfAnotherWindowDoesNotLeaveTheWindow(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	runs := manyRuns()
	insertRuns(t, pool, runs)
	early, late := RunCursor(runs[0]), RunCursor(runs[len(runs)-1])
	window := Window{runs[30].CreatedAt, runs[60].CreatedAt}
	for _, attributes := range []map[string]string{nil, {"env": "prod"}} {
		for _, p := range []pg.Page{
			{Limit: 1000, Cursor: early}, {Limit: 1000, Cursor: late, Descending: true},
		} {
			f := RunFilter{Created: window, Attributes: attributes}
			want, _, err := ListRuns(t.Context(), pool, home, f, pg.Page{Limit: p.Limit, Descending: p.Descending})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := ListRuns(t.Context(), pool, home, f, p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("%d runs, with cursor %s (-without +with):\n%s", len(got), p.Cursor, diff)
			}
		}
	}
}

func TestListRunsValidatesTheFilter(t *testing.T) {
	t.Parallel()
	nine := map[string]string{}
	for i := range maxAttributeFilters + 1 {
		nine[fmt.Sprint(i)] = "v"
	}
	eight := maps.Clone(nine)
	delete(eight, "0")
	tests := map[string]struct {
		f     RunFilter
		valid bool
	}{
		"status":         {RunFilter{Status: "asleep"}, false},
		"status none":    {RunFilter{Status: entities.RunNone}, false},
		"window":         {RunFilter{Created: Window{day, day.Add(-1)}}, false},
		"an instant":     {RunFilter{Created: Window{day, day}}, true},
		"nine":           {RunFilter{Attributes: nine}, false},
		"eight":          {RunFilter{Attributes: eight}, true},
		"no key":         {RunFilter{Attributes: map[string]string{"": "v"}}, false},
		"long key":       {RunFilter{Attributes: map[string]string{strings.Repeat("k", 257): "v"}}, false},
		"long value":     {RunFilter{Attributes: map[string]string{"k": strings.Repeat("v", 257)}}, false},
		"NUL":            {RunFilter{Attributes: map[string]string{"k": "a\x00"}}, false},
		"a reserved key": {RunFilter{Attributes: map[string]string{"$parentRunId": "v"}}, true},
	}
	pool := testdb.Pool(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := ListRuns(t.Context(), pool, home, tt.f, pg.Page{Limit: 1})
			wantInvalid(t, err, tt.valid)
		})
	}
}

// TestLongSearchEndsThePageAndContinues: of two attributes, each on half of the runs, only the oldest run has both.
func TestLongSearchEndsThePageAndContinues(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
			created_at, updated_at)
		SELECT 'wrun_' || lpad(i::text, 6, '0'), 'home', 'dpl_1', 'w', 'pending', 3,
			CASE WHEN i = 1 THEN '{"a": "1", "b": "1"}' WHEN i % 2 = 0 THEN '{"a": "1"}' ELSE '{"b": "1"}' END::jsonb, 1,
			$2::timestamptz + i * interval '1 ms', $2
		FROM generate_series(1, 2.5 * $1::int) i`, maxLeaps, day); err != nil {
		t.Fatal(err)
	}
	copyAttributes(t, pool)
	f := RunFilter{Attributes: map[string]string{"a": "1", "b": "1"}}
	p := pg.Page{Limit: 1, Descending: true}
	var got []entities.RunID
	pages := 0
	for ; ; pages++ {
		runs, next, err := ListRuns(t.Context(), pool, home, f, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			got = append(got, r.ID)
		}
		if next == "" {
			break
		}
		p.Cursor = next
	}
	if diff := cmp.Diff([]entities.RunID{"wrun_000001"}, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if pages < 1 {
		t.Errorf("got it in one page, after more than %d leaps", maxLeaps)
	}
}

// copyAttributes creates the attribute rows of runs that were inserted by SQL.
func copyAttributes(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO run_attributes (run_id, key, value, project, workflow_name, created_at)
		SELECT r.id, a.key, a.value, r.project, r.workflow_name, r.created_at
		FROM runs r, jsonb_each_text(r.attributes) a`); err != nil {
		t.Fatal(err)
	}
}
