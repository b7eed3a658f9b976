package stats

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestShapesLeaveOutWhatDiffers(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                              "",
		"the bank is busy":              "the bank is busy",
		"card ending 4242 was declined": "card ending … was declined",
		`no item "blue chair" in stock`: "no item … in stock",
		"it can't be that 7 won't do":   "it can't be that … won't do",
		"key 'a b' is taken":            "key … is taken",
		"after 1.5s at 10.0.0.1:8080":   "after …s at …",
		"run wrun_01JD5A8R8D0000000000000000 is gone":            "run … is gone",
		"order 123e4567-e89b-12d3-a456-426614174000: not found":  "order …: not found",
		"digest 9f86d081884c7d659a2feaa0c55ad015 and 0xDEADBEEF": "digest … and …",
		"a" + strings.Repeat("é", 300):                           "a" + strings.Repeat("é", 99) + "…",
	} {
		if got := shapeOf(message); got != want {
			t.Errorf("%q: got %q, want %q", message, got, want)
		}
	}
}

func TestFailedRunsAreGrouped(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return from.Add(time.Duration(minutes) * time.Minute) }
	run := func(id, step, code, message string, minutes int) Failed {
		return Failed{
			RunID: entities.RunID(id), Workflow: "refund", Step: step, Code: code, Payload: []byte(message),
			Deployment: "shop-" + id, CreatedAt: at(minutes - 30), FailedAt: at(minutes),
		}
	}
	got := GroupFailed([]Failed{
		run("d", "charge", "declined", "card 3", 59), run("a", "charge", "declined", "card 1", 0),
		run("b", "ship", "declined", "card 1", 20), run("c", "charge", "declined", "no card", 21),
		run("e", "charge", "declined", "card 2", -5),
	}, func(f Failed) string { return string(f.Payload) }, from, at(60), 4)
	want := []FailureGroup{
		{
			Workflow: "refund", Step: "charge", Code: "declined", Shape: "card …", Message: "card 3", Count: 3, First: at(-5),
			Last: at(59), CreatedFrom: at(-35), FirstDeployment: "shop-e", RunID: "d", Trend: []int{2, 0, 0, 1},
		},
		{
			Workflow: "refund", Step: "charge", Code: "declined", Shape: "no card", Message: "no card", Count: 1, First: at(21),
			Last: at(21), CreatedFrom: at(-9), FirstDeployment: "shop-c", RunID: "c", Trend: []int{0, 1, 0, 0},
		},
		{
			Workflow: "refund", Step: "ship", Code: "declined", Shape: "card …", Message: "card 1", Count: 1, First: at(20),
			Last: at(20), CreatedFrom: at(-10), FirstDeployment: "shop-b", RunID: "b", Trend: []int{0, 1, 0, 0},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestListsOfWorkflowsAndFailuresAreBounded counts the blocks that the lists touch in a database of 30,000 runs of three
// workflows, of which 3,000 have failed. Runs alone fill more than a thousand blocks.
func TestListsOfWorkflowsAndFailuresAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at,
			updated_at, completed_at, error_code)
		SELECT 'wrun_' || i, 'default', 'shop', 'w' || i % 3, CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'running' END, 6, 20,
			CASE WHEN i % 10 = 0 THEN 20 ELSE 0 END, now() + i * interval '1 s', now(), CASE WHEN i % 10 = 0 THEN now() END,
			CASE WHEN i % 10 = 0 THEN 'busy' ELSE '' END
		FROM generate_series(1, 30000) i`,
		`INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data, xid)
		SELECT 'default', 'wrun_' || i, 20, 'run_failed', 6, now(), '{}', i::text::xid8
		FROM generate_series(10, 30000, 10) i`,
		`VACUUM ANALYZE`,
	} {
		if _, err := f.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	statuses := fmt.Sprintf("{%s}", "pending,running,completed,failed,cancelled")
	for name, query := range map[string]struct {
		sql  string
		args []any
		most int
	}{
		"workflows": {workflowsSQL, []any{home, "", 100, statuses, "{pending,running}", MaxOpen + 1}, 500},
		// Each run touches its entry in the index of the feed, its event, twice, and its row.
		"failed": {failedSQL, []any{home, MaxFailed, time.Time{}, MaxFailedPayload, stepWithin}, 20 * MaxFailed},
	} {
		if blocks := testdb.Blocks(t, f.pool, query.sql, query.args...); blocks > query.most {
			t.Errorf("%s: %d blocks touched, want at most %d", name, blocks, query.most)
		} else {
			t.Logf("%s: %d blocks", name, blocks)
		}
	}
	runs, more, err := f.Failed(t.Context(), home, time.Time{}, 0)
	if err != nil || len(runs) != MaxFailed || !more {
		t.Errorf("got %d runs, more %v, error %v", len(runs), more, err)
	}
	list, err := f.Workflows(t.Context(), home, "w0", 10)
	if err != nil || len(list) != 2 || list[0].Name != "w1" || list[0].Open != MaxOpen+1 {
		t.Errorf("got %+v, error %v", list, err)
	}
}

// TestTotalsAreOfTheWholeWindow checks that percentiles of a total are those of all runs, not of an interval.
func TestTotalsAreOfTheWholeWindow(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }
	completed := func(name string, hour int, took int16, n int64) count {
		return count{Name: name, At: at(hour), Metric: string(entities.EventRunCompleted), Took: took, Count: n}
	}
	list := newSeries([]count{
		completed("order", 1, 21, 99), completed("order", 2, 5, 1), completed("refund", 1, 5, 7),
	})
	if len(list) != 2 || len(list[0].Points) != 2 {
		t.Fatalf("got %+v", list)
	}
	total := list[0].Total
	if total.Completed != 100 || !total.At.Equal(at(1)) || *total.Took != *list[0].Points[0].Took {
		t.Errorf("got %+v with %+v", total, total.Took)
	}
	if other := list[1].Total; other.Completed != 7 || *other.Took != *list[1].Points[0].Took {
		t.Errorf("got %+v with %+v", other, other.Took)
	}
}
