package read

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// at returns a number of milliseconds after [day].
func at(ms int) time.Time { return day.Add(time.Duration(ms) * time.Millisecond) }

func timeAt(ms int) *time.Time { t := at(ms); return &t }

// TestStepsAreGrouped has steps that run at the same time, one that is open, a child, and some that their function
// recorded.
func TestStepsAreGrouped(t *testing.T) {
	t.Parallel()
	g := grouping{end: at(6000), groups: map[string]*group{}}
	for _, s := range []groupedStep{
		{Name: "a", ID: "a1", Status: entities.StepCompleted, CreatedAt: at(0), StartedAt: timeAt(100), CompletedAt: timeAt(1000)},
		{Name: "b", ID: "b1", Status: entities.StepPending, CreatedAt: at(3000)},
		{Name: "child", ID: "d1", Status: entities.StepCompleted, CreatedAt: at(1000), CompletedAt: timeAt(5000)},
		{Name: "a", ID: "a2", Status: entities.StepFailed, Retried: true, CreatedAt: at(0), StartedAt: timeAt(100), CompletedAt: timeAt(3000)},
		{Name: "a", ID: "a3", Status: entities.StepCompleted, CreatedAt: at(1000), StartedAt: timeAt(1000), CompletedAt: timeAt(1200)},
		{Name: "c", ID: "c1", Status: entities.StepCompleted, CreatedAt: at(5000), CompletedAt: timeAt(5000),
			Recorded: []*time.Time{timeAt(4000), timeAt(4700)}},
		{Name: "c", ID: "c2", Status: entities.StepCompleted, CreatedAt: at(5000), CompletedAt: timeAt(5000),
			Recorded: []*time.Time{timeAt(9000), timeAt(9500)}}, // by a clock that is ahead
	} {
		g.add(s)
	}
	want := []StepGroup{
		{Name: "a", Count: 3, Statuses: map[entities.StepStatus]int{entities.StepCompleted: 2, entities.StepFailed: 1},
			Retried: 1, Median: 900 * time.Millisecond, Longest: 2900 * time.Millisecond, Slowest: "a2",
			FirstAt: at(0), LastAt: at(3000)},
		{Name: "b", Count: 1, Statuses: map[entities.StepStatus]int{entities.StepPending: 1}, FirstAt: at(3000), LastAt: at(6000)},
		{Name: "child", Count: 1, Statuses: map[entities.StepStatus]int{entities.StepCompleted: 1}, Median: 4 * time.Second,
			Longest: 4 * time.Second, Slowest: "d1", FirstAt: at(1000), LastAt: at(5000)},
		{Name: "c", Count: 2, Statuses: map[entities.StepStatus]int{entities.StepCompleted: 2}, Longest: 700 * time.Millisecond,
			Slowest: "c1", FirstAt: at(4000), LastAt: at(5000)},
	}
	got := g.result()
	for i := range got {
		got[i].Density = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestDensityCountsOpenSteps: a step counts in each part of the time that it touches.
func TestDensityCountsOpenSteps(t *testing.T) {
	t.Parallel()
	first, last := at(0), at(60_000)
	got := density([]time.Time{at(0), at(1500), at(59_999)}, []time.Time{at(60_000), at(3500), at(60_000)}, first, last)
	want := make([]int, Buckets)
	for i := range want {
		want[i] = 1
	}
	want[1], want[2], want[3], want[59] = 2, 2, 2, 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("density (-want +got):\n%s", diff)
	}
	if got := density([]time.Time{first}, []time.Time{first}, first, first); got[0] != 1 || len(got) != Buckets {
		t.Errorf("of an instant: %v", got)
	}
}

// TestGroupsHaveALimit: more names are counted, but not shown.
func TestGroupsHaveALimit(t *testing.T) {
	t.Parallel()
	g := grouping{end: at(1), groups: map[string]*group{}}
	for i := range 2 * (MaxGroups + 1) {
		g.add(groupedStep{Name: string(rune('a' + i%(MaxGroups+1))), CreatedAt: at(0)})
	}
	if got := g.result(); len(got) != MaxGroups || len(g.order) != MaxGroups+1 || g.order[MaxGroups].Count != 2 {
		t.Errorf("%d groups shown of %d, want %d", len(got), len(g.order), MaxGroups)
	}
}

// longRun fills the database with a run of 33,333 steps, each completed with three events, apart from every 1,000th, which
// failed. They have one name, apart from two.
func (f planFixture) longRun(t *testing.T, steps int64) entities.Run {
	t.Helper()
	run := entities.Run{ID: "wrun_long", LastSeq: 3*steps + 1}
	f.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ($1, 'home', 'dpl_1', 'w', 'running', 3, $2, $3, $3)`, run.ID, run.LastSeq, day)
	f.exec(t, `
		INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, result_seq, created_at, updated_at,
			started_at, completed_at)
		SELECT $1, 's' || i, CASE WHEN i IN (7, 33000) THEN 'rare' ELSE 'item' END,
			CASE WHEN i % 1000 = 0 THEN 'failed' ELSE 'completed' END, 1, 3, 3 * i - 1, 3 * i + 1, $2::timestamptz + i * interval '1 s',
			$2, $2::timestamptz + i * interval '1 s', $2::timestamptz + i * interval '1 s' + i % 100 * interval '1 ms'
		FROM generate_series(1, $3::integer) i`, run.ID, day, steps)
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT 'home', $1, seq, CASE WHEN seq = 1 THEN 'run_created'
				ELSE ('{step_started,step_completed,step_created}'::text[])[1 + seq % 3] END,
			CASE WHEN seq = 1 THEN '' ELSE 's' || (seq + 1) / 3 END, 3, $2::timestamptz + seq / 3 * interval '1 s', '{"stepName": "item"}',
			'1'::xid8
		FROM generate_series(1, $3::bigint) seq`, run.ID, day, run.LastSeq)
	return run
}

// TestTimelineOfStepsKeepsItsPlan: a plan that was made when there were no events looks up the event of each step, and
// does not read the log up to it.
func TestTimelineOfStepsKeepsItsPlan(t *testing.T) {
	t.Parallel()
	f := newPlanFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	blocks := func() int {
		var data []byte
		err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE q ('wrun_long', 5500, 6001, 101, 'item', '{}')`,
			pgx.QueryExecModeSimpleProtocol).Scan(&data)
		if err != nil {
			t.Fatal(err)
		}
		var explained []struct{ Plan planBlocks }
		if err := json.Unmarshal(data, &explained); err != nil {
			t.Fatal(err)
		}
		return explained[0].Plan.Hit + explained[0].Plan.Read
	}
	for _, sql := range []string{
		`SET plan_cache_mode = force_generic_plan`,
		`PREPARE q AS ` + fmt.Sprintf(timelineEvents, fmt.Sprintf(timelineSteps, "ASC"), "ASC", MaxLater),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	blocks()
	f.longRun(t, 2000)
	if n := blocks(); n > 2000 {
		t.Errorf("%d blocks touched: want those of 100 steps and their events", n)
	}
}

// TestEventsOfAnEntityAreFoundByItsID: plans that were made when there were no events look up the ID, instead of reading
// the log of the run in its order, or all events of a type.
func TestEventsOfAnEntityAreFoundByItsID(t *testing.T) {
	t.Parallel()
	conn, err := newPlanFixture(t).pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, test := range map[string]struct {
		sql   string
		scans int
	}{
		"timeline": {fmt.Sprintf(timelineEvents, fmt.Sprintf(timelineParts, "ASC"), "ASC", MaxLater), 1},
		"hooks":    {hookHistory + ` AND made.run_id = $1`, 3},
		"waits":    {waitHistory + ` AND made.run_id = $1`, 3},
	} {
		plan := testdb.GenericPlan(t, conn.Conn(), test.sql)
		if n := strings.Count(plan, "events_entity_idx"); n != test.scans {
			t.Errorf("%s: %d scans by ID, want %d:\n%s", name, n, test.scans, plan)
		}
	}
}

// TestLongTimelineIsReadInParts: of a run of 100,000 events, each request looks at a part.
func TestLongTimelineIsReadInParts(t *testing.T) {
	t.Parallel()
	f := newPlanFixture(t)
	run := f.longRun(t, 33_333)
	f.exec(t, `ANALYZE`)
	began := time.Now()
	first, err := f.StepGroups(t.Context(), run, "")
	t.Logf("summed up %d steps in %s", first.Steps, time.Since(began))
	if err != nil || first.Steps != MaxGroupedSteps || first.Names != 2 || first.Cursor != "29999" {
		t.Fatalf("got %d steps of %d names, cursor %q, %v", first.Steps, first.Names, first.Cursor, err)
	}
	if g := first.Groups[0]; g.Name != "item" || g.Statuses[entities.StepFailed] != 10 || g.Count != MaxGroupedSteps-1 ||
		g.Longest != 99*time.Millisecond || g.Slowest != "s99" {
		t.Errorf("got %+v", g)
	}
	last, err := f.StepGroups(t.Context(), run, "89999")
	if err != nil || last.Steps != 3_333 || last.Names != 2 || last.Cursor != "" {
		t.Errorf("the last ones: got %d steps of %d names, cursor %q, %v", last.Steps, last.Names, last.Cursor, err)
	}
	// The steps of the run are read in the order of their IDs.
	if blocks := f.blocks(t, groupedSteps, run.ID, 0, MaxGroupedSteps+1); blocks > 9000 {
		t.Errorf("%d blocks touched: want those of the steps, not of all events", blocks)
	}
	for name, test := range map[string]struct {
		q     TimelineQuery
		pages [][]string // the IDs on each page
	}{
		"by name":        {TimelineQuery{Name: "rare"}, [][]string{{"s7"}, {"s33000"}}},
		"newest by name": {TimelineQuery{Name: "rare", Page: pg.Page{Descending: true}}, [][]string{{"s33000"}, {"s7"}}},
		"by status": {TimelineQuery{Statuses: []entities.StepStatus{entities.StepFailed, entities.StepRunning},
			Page: pg.Page{Limit: 2, Cursor: "95000"}}, [][]string{{"s32000", "s33000"}}},
		"all, the last ones": {TimelineQuery{Page: pg.Page{Cursor: "99993"}}, [][]string{{"s33332", "s33333"}}},
	} {
		for i, want := range test.pages {
			if test.q.Limit == 0 {
				test.q.Limit = 100
			}
			began := time.Now()
			parts, next, err := f.Timeline(t.Context(), run, test.q)
			t.Logf("%s: %d parts in %s", name, len(parts), time.Since(began))
			var got []string
			for _, p := range parts {
				got = append(got, p.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil || (next == "") != (i == len(test.pages)-1) {
				t.Errorf("%s, page %d: cursor %q, %v (-want +got):\n%s", name, i, next, err, diff)
			}
			test.q.Cursor = next
		}
	}
}

// TestTimelineLooksAtLittle: a part far away in the log is not looked for, and pages before it are empty.
func TestTimelineLooksAtLittle(t *testing.T) {
	t.Parallel()
	f := newPlanFixture(t)
	f.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ('wrun_1', 'home', 'dpl_1', 'w', 'running', 3, 25001, $1, $1)`, day)
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT 'home', 'wrun_1', seq, CASE WHEN seq = 25001 THEN 'wait_created' ELSE 'attr_set' END,
			CASE WHEN seq = 25001 THEN 'w' ELSE '' END, 3, $1, '{}', '1'::xid8 FROM generate_series(1, 25001) seq`, day)
	run := entities.Run{ID: "wrun_1", LastSeq: 25_001}
	for name, test := range map[string]struct {
		q    TimelineQuery
		want string // the cursors, and the ID at the end
	}{
		"oldest first": {TimelineQuery{}, "10000 20000  w"},
		"newest first": {TimelineQuery{Page: pg.Page{Descending: true, Cursor: "25001"}}, "15001 5001  "},
	} {
		got := ""
		test.q.Limit = 10
		for range 3 {
			parts, next, err := f.Timeline(t.Context(), run, test.q)
			if err != nil {
				t.Fatal(err)
			}
			got += next + " "
			if len(parts) > 0 {
				got += parts[0].ID
			}
			test.q.Cursor = next
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if _, next, err := f.Timeline(t.Context(), run, TimelineQuery{Page: pg.Page{Cursor: "9223372036854775807", Limit: 1}}); next != "" || err != nil {
		t.Errorf("after the end: got cursor %q, error %v, want none", next, err)
	}
	for _, cursor := range []string{"x", "-1"} {
		if _, _, err := f.Timeline(t.Context(), run, TimelineQuery{Page: pg.Page{Cursor: cursor, Limit: 1}}); err == nil {
			t.Errorf("cursor %q is accepted", cursor)
		}
	}
}
