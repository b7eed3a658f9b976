package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// meter is a pool that records its last query, to explain it.
type meter struct {
	*pgxpool.Pool

	sql  string
	args []any
}

func (m *meter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	m.sql, m.args = sql, args
	return m.Pool.Query(ctx, sql, args...)
}

// plan is a node of the output of EXPLAIN.
type plan struct {
	Kind  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
	Plans []plan
}

func (p plan) blocks() int { return p.Hit + p.Read }

// scans lists the nodes that read a table in another order than that of an index.
func (p plan) scans() []string {
	var list []string
	if p.Kind == "Seq Scan" || p.Kind == "Bitmap Heap Scan" {
		list = append(list, p.Kind+" of "+p.Table)
	}
	for _, part := range p.Plans {
		list = append(list, part.scans()...)
	}
	return list
}

// explain executes the last query again and returns its plan.
func (m *meter) explain(t *testing.T) plan {
	t.Helper()
	var data []byte
	if err := m.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+m.sql, m.args...).Scan(&data); err != nil {
		t.Fatal(err)
	}
	var explained []struct{ Plan plan }
	if err := json.Unmarshal(data, &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan
}

// explainGeneric is explain for the plan that Postgres makes for all arguments, as it does for frequent statements.
func (m *meter) explainGeneric(t *testing.T) plan {
	t.Helper()
	conn, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	text := make([]string, len(m.args))
	for i, a := range m.args {
		text[i] = literal(a)
	}
	for _, sql := range []string{`SET plan_cache_mode = force_generic_plan`, `PREPARE q AS ` + m.sql} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _, _ = conn.Exec(t.Context(), `RESET plan_cache_mode; DEALLOCATE q`) }()
	execute := `EXECUTE q`
	if len(text) > 0 {
		execute += `(` + strings.Join(text, ",") + `)`
	}
	var data []byte
	if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+execute,
		pgx.QueryExecModeSimpleProtocol).Scan(&data); err != nil {
		t.Fatal(err)
	}
	var explained []struct{ Plan plan }
	if err := json.Unmarshal(data, &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan
}

// literal returns an argument as a literal of SQL.
func literal(a any) string {
	if at, ok := a.(time.Time); ok {
		a = at.Format(time.RFC3339Nano)
	}
	if list := reflect.ValueOf(a); list.Kind() == reflect.Slice {
		parts := make([]string, list.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(list.Index(i))
		}
		a = "{" + strings.Join(parts, ",") + "}"
	}
	return fmt.Sprintf("'%v'", a)
}

// TestListsReadAboutAPage counts the blocks that each list touches in a database of 40,000 runs, in which workflow w7,
// failed runs and some attributes are rare. The table of runs alone has more than a thousand blocks.
func TestListsReadAboutAPage(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, end_seq,
			created_at, updated_at, completed_at, unique_key, parent_id, error_code)
		SELECT 'wrun_' || md5(i::text), 'home', 'dpl_1', 'w' || CASE WHEN i % 5000 = 0 THEN 7 ELSE i % 7 END,
			CASE WHEN i % 4000 = 0 THEN 'failed' WHEN i > 39900 THEN 'running' ELSE 'completed' END, 3,
			CASE i % 2 WHEN 0 THEN jsonb_build_object('env', CASE WHEN i % 100 = 0 THEN 'dev' ELSE 'prod' END, 'user', i::text)
				ELSE '{"half": "1"}' END || CASE WHEN i % 20000 = 0 THEN '{"debug": "1"}'::jsonb ELSE '{}' END,
			9, CASE WHEN i > 39900 THEN 0 ELSE 9 END, at, at, CASE WHEN i <= 39900 THEN at END,
			CASE WHEN i % 2000 = 0 THEN 'rare' WHEN i > 39900 OR i % 3 > 0 THEN '' WHEN i % 2 = 0 THEN 'common' ELSE 'k' || i END,
			CASE WHEN i % 2000 = 0 THEN 'rare' WHEN i % 3 = 0 THEN 'p' || i / 100 ELSE '' END,
			CASE WHEN i % 20000 = 4000 THEN 'rare' WHEN i % 4000 = 0 THEN 'common' ELSE '' END
		FROM (SELECT i, $1::timestamptz + i * interval '1 s' AS at FROM generate_series(1, 39999) i) made`, day); err != nil {
		t.Fatal(err)
	}
	copyAttributes(t, m.Pool)
	if _, err := m.Exec(t.Context(), `ANALYZE runs; ANALYZE run_attributes`); err != nil {
		t.Fatal(err)
	}
	in := func(from, to int) Window {
		return Window{day.Add(time.Duration(from) * time.Second), day.Add(time.Duration(to) * time.Second)}
	}
	const page, walk = 120, 4000 // blocks, for a list with one condition and for a leapfrog join
	for name, tt := range map[string]struct {
		filter RunFilter
		most   int
	}{
		"all":                   {RunFilter{}, page},
		"common status":         {RunFilter{Status: entities.RunCompleted}, page},
		"rare status":           {RunFilter{Status: entities.RunFailed}, page},
		"error code":            {RunFilter{ErrorCode: "common"}, page},
		"rare error code":       {RunFilter{ErrorCode: "rare", WorkflowName: "w7"}, page},
		"error code of no run":  {RunFilter{ErrorCode: "none"}, page},
		"new status":            {RunFilter{Status: entities.RunRunning}, page},
		"status of no run":      {RunFilter{Status: entities.RunCancelled}, page},
		"window":                {RunFilter{Created: in(20000, 20100)}, page},
		"window of no run":      {RunFilter{Created: in(-20, -10)}, page},
		"window and status":     {RunFilter{Created: in(20000, 30000), Status: entities.RunRunning}, page},
		"common workflow":       {RunFilter{WorkflowName: "w1"}, page},
		"rare workflow":         {RunFilter{WorkflowName: "w7"}, page},
		"open":                  {RunFilter{Open: true}, page},
		"open, of a workflow":   {RunFilter{Open: true, WorkflowName: "w1"}, page},
		"common key":            {RunFilter{UniqueKey: "common"}, page},
		"workflow of no run":    {RunFilter{WorkflowName: "w8"}, page},
		"workflow and status":   {RunFilter{WorkflowName: "w1", Status: entities.RunCancelled}, page},
		"workflow and window":   {RunFilter{WorkflowName: "w1", Created: in(20000, 20100)}, page},
		"common attribute":      {RunFilter{Attributes: map[string]string{"env": "prod"}}, 250},
		"rare attribute":        {RunFilter{Attributes: map[string]string{"debug": "1"}}, page},
		"attribute of no run":   {RunFilter{Attributes: map[string]string{"env": "x"}}, page},
		"attribute and window":  {RunFilter{Attributes: map[string]string{"env": "prod"}, Created: in(20000, 30000)}, 250},
		"common and rare":       {RunFilter{Attributes: map[string]string{"env": "prod", "user": "20002"}}, page},
		"common, no run failed": {RunFilter{Attributes: map[string]string{"half": "1"}, Status: entities.RunCancelled}, page},
		"common, some failed":   {RunFilter{Attributes: map[string]string{"env": "dev"}, Status: entities.RunFailed}, 250},
		"attribute, workflow":   {RunFilter{Attributes: map[string]string{"env": "prod"}, WorkflowName: "w3"}, walk},
		"deployment":            {RunFilter{DeploymentID: "dpl_1"}, page},
		"newest end":            {RunFilter{ByEnd: true}, page},
		"end and status":        {RunFilter{ByEnd: true, Status: entities.RunCompleted}, page},
		"deployment of no run":  {RunFilter{DeploymentID: "dpl_2"}, walk},
		"end, some failed":      {RunFilter{ByEnd: true, Status: entities.RunFailed}, walk},
		"rare and workflow":     {RunFilter{Attributes: map[string]string{"env": "dev"}, WorkflowName: "w3"}, walk},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []pg.Page{{Limit: 20}, {Limit: 20, Descending: true}} {
				_, next, err := ListRuns(t.Context(), m, home, tt.filter, p)
				if err != nil {
					t.Fatal(err)
				}
				m.wantIndexed(t, tt.most)
				if p.Cursor = next; next == "" {
					continue
				}
				if _, _, err := ListRuns(t.Context(), m, home, tt.filter, p); err != nil {
					t.Fatal(err)
				}
				m.wantIndexed(t, tt.most)
			}
		})
	}
	for name, f := range map[string]RunFilter{ // matched by so few runs that they may be sorted
		"rare key": {UniqueKey: "rare"}, "key of no run": {UniqueKey: "x"}, "rare parent": {ParentID: "rare"},
		"parent": {ParentID: "p7"}, "parent of no run": {ParentID: "x"}, "parent and status": {ParentID: "p7", Open: true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := ListRuns(t.Context(), m, home, f, pg.Page{Limit: 20, Descending: true}); err != nil {
				t.Fatal(err)
			}
			if n := m.explain(t).blocks(); n > 250 {
				t.Errorf("%d blocks touched, want at most 250", n)
			}
		})
	}
	for name, f := range map[string]KeyFilter{
		"attributes": {}, "attributes of a workflow": {WorkflowName: "w1"},
		"attributes of a window": {Created: in(20000, 20100)}, "attributes of no run": {WorkflowName: "w8"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := ListAttributeKeys(t.Context(), m, home, f, pg.Page{Limit: 100}); err != nil {
				t.Fatal(err)
			}
			if n := m.explain(t).blocks(); n > walk { // rows are counted
				t.Errorf("%d blocks touched, want at most %d", n, walk)
			}
		})
	}
	testSearchPlans(t, m)
}

// TestRunsOfOneMillisecondAreListedByID: the indexes of the lists do not have the IDs. They have one entry for all runs
// of a millisecond, and a page reads those of one millisecond, not of all.
func TestRunsOfOneMillisecondAreListedByID(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	const n, together = 20_000, 500
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at,
			updated_at, completed_at)
		SELECT 'wrun_' || md5(i::text), 'home', 'dpl_1', 'w', 'completed', 3, 9, 9, at, at, at
		FROM (SELECT i, $3::timestamptz + i / $2::int * interval '1 ms' AS at FROM generate_series(0, $1::int - 1) i) made`,
		n, together, day); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exec(t.Context(), `ANALYZE runs`); err != nil {
		t.Fatal(err)
	}
	var entry int
	err := m.QueryRow(t.Context(), `SELECT max(pg_relation_size(oid)) / $1::int FROM pg_class
		WHERE relname IN ('runs_status_created_idx', 'runs_workflow_created_idx', 'runs_completed_idx')
			AND relnamespace = current_schema()::regnamespace`, n).Scan(&entry)
	if err != nil || entry == 0 || entry > 20 {
		t.Errorf("a run takes %d bytes of an index, error %v; want at most 20", entry, err)
	}
	for _, p := range []pg.Page{{Limit: 300}, {Limit: 300, Descending: true}} {
		for _, f := range []RunFilter{{Status: entities.RunCompleted}, {WorkflowName: "w"}, {ByEnd: true}} {
			var found []entities.Run
			for page := p; len(found) < 3*together; {
				runs, next, err := ListRuns(t.Context(), m, home, f, page)
				if err != nil || len(runs) != page.Limit {
					t.Fatalf("got %d runs, error %v", len(runs), err)
				}
				m.wantIndexed(t, 5*together)
				found, page.Cursor = append(found, runs...), next
			}
			inOrder := slices.IsSortedFunc(found, func(a, b entities.Run) int {
				order := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
				if p.Descending {
					return -order
				}
				return order
			})
			if distinct := slices.CompactFunc(slices.Clone(found), func(a, b entities.Run) bool { return a.ID == b.ID }); !inOrder || len(distinct) != len(found) {
				t.Errorf("%+v, descending %t: %d different runs of %d, in order: %t",
					f, p.Descending, len(distinct), len(found), inOrder)
			}
		}
	}
}

// TestRareFailuresOfAWorkflowAreFoundInPages: of a workflow that fails often and a code that is common, with few runs that
// have both, a page looks at a limited number, and the pages together have all.
func TestRareFailuresOfAWorkflowAreFoundInPages(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	const n = 3 * maxLeaps
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at, updated_at,
			completed_at, error_code)
		SELECT 'wrun_' || lpad(i::text, 9, '0'), 'home', 'dpl_1', CASE WHEN i % 2 = 0 OR i = 6001 THEN 'order' ELSE 'refund' END, 'failed', 3, 9, 9,
			at, at, at, CASE WHEN i % 2 = 1 THEN 'timeout' ELSE 'declined' END
		FROM (SELECT i, $2::timestamptz + i * interval '1 s' AS at FROM generate_series(1, 2 * $1::int) i) made`, n, day); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exec(t.Context(), `ANALYZE runs`); err != nil {
		t.Fatal(err)
	}
	f := RunFilter{WorkflowName: "order", ErrorCode: "timeout"}
	var found []entities.Run
	p := pg.Page{Limit: 20}
	for page := 1; page == 1 || p.Cursor != ""; page++ {
		runs, next, err := ListRuns(t.Context(), m, home, f, p)
		if err != nil {
			t.Fatal(err)
		}
		m.wantIndexed(t, 2*maxLeaps)
		if page == 1 && next == "" {
			t.Error("the first page has read all failed runs")
		}
		found, p.Cursor = append(found, runs...), next
	}
	if len(found) != 1 || found[0].ID != "wrun_000006001" {
		t.Errorf("got %v, want one run", found)
	}
	if c, err := CountRuns(t.Context(), m, home, f); err != nil || !c.AtLeast {
		t.Errorf("got %+v, %v, want that counting stopped", c, err)
	}
}

// testSearchPlans counts the blocks that counts and searches touch. They read a limited part of an index.
func testSearchPlans(t *testing.T, m *meter) {
	count := func(f RunFilter) func() error {
		return func() error {
			_, err := CountRuns(t.Context(), m, home, f)
			return err
		}
	}
	for name, tt := range map[string]struct {
		do   func() error
		most int
	}{
		"count":              {count(RunFilter{}), 12_000},
		"count a deployment": {count(RunFilter{DeploymentID: "dpl_1"}), 12_000},
		"count a workflow":   {count(RunFilter{WorkflowName: "w7"}), 250},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
			m.wantIndexed(t, tt.most)
		})
	}
}

// wantIndexed fails the test if the last query touched more than the given blocks or read a table without its index.
func (m *meter) wantIndexed(t *testing.T, most int) {
	t.Helper()
	p := m.explain(t)
	if n := p.blocks(); n > most {
		t.Errorf("%d blocks touched, want at most %d", n, most)
	}
	if scans := p.scans(); len(scans) > 0 {
		t.Errorf("the plan has %q", scans)
	}
}

// TestExpiredRunsReadAboutAPage: also in a project with many streams.
func TestExpiredRunsReadAboutAPage(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq,
			created_at, updated_at, completed_at)
		SELECT 'wrun_' || md5(i::text), 'home', 'dpl_1', 'w', 'completed', 3, 9, 9, at, at, at
		FROM (SELECT i, $1::timestamptz + i * interval '1 s' AS at FROM generate_series(1, 20000) i) made`, day); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exec(t.Context(), `
		INSERT INTO streams (project, name, run_id, chunks, created_at)
		SELECT project, id || n, id, n, created_at FROM runs, generate_series(1, 2) n`); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Exec(t.Context(), `ANALYZE runs; ANALYZE streams`); err != nil {
		t.Fatal(err)
	}
	var after EndedRun
	for range 2 {
		runs, err := ExpiredRuns(t.Context(), m, home, time.Second, after, 20)
		if err != nil || len(runs) != 20 || runs[7].Chunks != 3 {
			t.Fatalf("got %v, error %v; want 20 runs with 3 chunks each", runs, err)
		}
		if n := m.explain(t).blocks(); n > 250 {
			t.Errorf("%d blocks touched, want at most 250", n)
		}
		after = runs[19].EndedRun
	}
}

// TestStepByIDIsFastAmongRunsWithEqualStepIDs: also with a generic plan, which Postgres uses for frequent statements.
func TestStepByIDIsFastAmongRunsWithEqualStepIDs(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	const runs = 5000
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at, updated_at)
		SELECT 'wrun_' || i, 'home', 'dpl_1', 'w', 'running', 2, 2, 0, now(), now() FROM generate_series(10001, 10000 + $1::int) i`,
		`INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
		SELECT 'home', 'wrun_' || i, 2, 'step_created', 'charge', 2, now(), '{}' FROM generate_series(10001, 10000 + $1::int) i`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		SELECT 'wrun_' || i, 'charge', 'charge', 'pending', 0, 2, 2, now(), now() FROM generate_series(10001, 10000 + $1::int) i`,
	} {
		if _, err := m.Exec(t.Context(), sql, runs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Exec(t.Context(), `ANALYZE`); err != nil {
		t.Fatal(err)
	}
	const last = entities.RunID("wrun_15000")
	step, err := StepByID(t.Context(), m, home, last, "charge")
	if err != nil || step.RunID != last {
		t.Fatalf("got %+v, error %v", step, err)
	}
	if n := m.explainGeneric(t).blocks(); n > 20 {
		t.Errorf("%d blocks touched, want at most 20", n)
	}
	if _, err := StepByID(t.Context(), m, "stranger", last, "charge"); !errors.Is(err, entities.ErrStepNotFound) {
		t.Errorf("step of another project: error %v, want ErrStepNotFound", err)
	}
	if step, err := StepByID(t.Context(), m, home, "", "charge"); err != nil || step.ID != "charge" {
		t.Errorf("step of any run: got %+v, error %v", step, err)
	}
}
