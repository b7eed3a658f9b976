package read

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

// day is the tests' time.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// planFixture is a log on its own database, filled by SQL statements.
type planFixture struct{ *Log }

func newPlanFixture(t *testing.T) planFixture {
	t.Helper()
	pool := testdb.Pool(t)
	return planFixture{New(pool, nil, time.Now)}
}

func (f planFixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// planBlocks is the part of EXPLAIN's output that counts the blocks a query touches.
type planBlocks struct {
	Hit  int `json:"Shared Hit Blocks"`
	Read int `json:"Shared Read Blocks"`
}

// TestProjectEventsReadAboutOnePage fills a database with 72,000 events of two projects and counts the blocks that each
// list touches. The events fill more than a thousand blocks. Few events are failures, and the small project
// has 100 events.
func TestProjectEventsReadAboutOnePage(t *testing.T) {
	t.Parallel()
	f := newPlanFixture(t)
	f.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		SELECT 'wrun_' || md5(i::text), CASE WHEN i % 300 = 0 THEN 'small' ELSE 'home' END, 'dpl_1', 'w', 'running', 3, 20, $1, $1
		FROM generate_series(1, 3000) i`, day)
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT CASE WHEN i % 300 = 0 THEN 'small' ELSE 'home' END, 'wrun_' || md5(i::text), seq,
			CASE WHEN i % 1000 = 7 AND seq = 20 THEN 'run_failed'
				ELSE ('{run_created,step_created,step_started,step_completed,attr_set}'::text[])[1 + seq % 5] END,
			CASE WHEN seq % 5 IN (1, 2, 3) THEN 'step_' || i || '_' || seq / 5 ELSE '' END,
			3, $1::timestamptz + i * interval '1 s', '{}', (1 + i / 10)::text::xid8
		FROM generate_series(1, 3000) i, generate_series(1, 20) seq`, day)
	// All runs have a step of one name, a few of which fail. No event of another type concerns it.
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT CASE WHEN i % 300 = 0 THEN 'small' ELSE 'home' END, 'wrun_' || md5(i::text), 20 + seq,
			CASE WHEN seq < 4 THEN 'step_retrying' WHEN i % 100 = 7 THEN 'step_failed' ELSE 'step_completed' END,
			'charge', 3, $1::timestamptz + i * interval '1 s', '{}', (1 + i / 10)::text::xid8
		FROM generate_series(1, 3000) i, generate_series(1, 4) seq`, day)
	f.exec(t, `ANALYZE`)
	run := entities.RunID("")
	if err := f.pool.QueryRow(t.Context(), `SELECT 'wrun_' || md5('2000')`).Scan(&run); err != nil {
		t.Fatal(err)
	}
	const page = 140 // blocks, of which some 60 are index look-ups, one or more for each type
	for name, test := range map[string]struct {
		project entities.Project
		q       EventQuery
		least   int // of a page of 20 events
	}{
		"all":                  {home, EventQuery{}, 20},
		"all of a small one":   {"small", EventQuery{}, 20},
		"no events":            {stranger, EventQuery{}, 0},
		"a common type":        {home, EventQuery{Types: []entities.EventType{"attr_set"}}, 20},
		"a rare type":          {home, EventQuery{Types: []entities.EventType{"run_failed"}}, 1},
		"rare types":           {home, EventQuery{Types: []entities.EventType{"run_failed", "run_cancelled"}}, 1},
		"an unused type":       {home, EventQuery{Types: []entities.EventType{"hook_created"}}, 0},
		"a correlation ID":     {home, EventQuery{CorrelationID: "step_2000_1"}, 1},
		"a common ID":          {home, EventQuery{CorrelationID: "charge"}, 20},
		"a common ID's end":    {home, EventQuery{CorrelationID: "charge", Types: []entities.EventType{"step_failed"}}, 1},
		"a run":                {home, EventQuery{RunID: run}, 1},
		"a run and a type":     {home, EventQuery{RunID: run, Types: []entities.EventType{"attr_set"}}, 1},
		"a run of another one": {"small", EventQuery{RunID: run}, 0},
	} {
		for _, p := range []pg.Page{{Limit: 20}, {Limit: 20, Descending: true}} {
			for range 2 { // the first page, and one further on
				entries, blocks := f.explain(t, test.project, test.q, p)
				most := page
				if test.q.CorrelationID == "charge" {
					most *= 3 // the events between those of the ID are read, too
				}
				if blocks > most {
					t.Errorf("%s, %+v: %d blocks touched, want at most %d", name, p, blocks, most)
				}
				if len(entries) < test.least && p.Cursor == "" {
					t.Errorf("%s, %+v: %d events, want %d", name, p, len(entries), test.least)
				}
				if len(entries) < 20 {
					break
				}
				p.Cursor = FeedCursorOf(entries[19]).String()
			}
		}
	}
}

// explain reads a page and returns the number of blocks that the query touches.
func (f planFixture) explain(t *testing.T, project entities.Project, q EventQuery, p pg.Page) ([]Entry, int) {
	t.Helper()
	page, err := f.ProjectEvents(t.Context(), project, q, p, WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSearch(project, q, p, WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	if p.Cursor != "" {
		if s.from, err = ParseFeedCursor(p.Cursor); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.findCommon(t.Context(), f.pool); err != nil {
		t.Fatal(err)
	}
	return page.Entries, f.blocks(t, s.payloads(s.ofProject(), s.feedOrder()), s.args...)
}

// blocks returns the number of blocks that a query touches.
func (f planFixture) blocks(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var data []byte
	err := pg.InTx(t.Context(), f.pool.Pool, func(tx pgx.Tx) error {
		// As for millions of events: Postgres rather sorts some ten thousand.
		if _, err := tx.Exec(t.Context(), `SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off`); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&data)
	})
	if err != nil {
		t.Fatal(err)
	}
	var explained []struct{ Plan planBlocks }
	if err := json.Unmarshal(data, &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// TestFeedWithinATransaction reads events that one transaction has written, of many runs, and those before and after it,
// in pages that end anywhere in it. The index does not tell them apart.
func TestFeedWithinATransaction(t *testing.T) {
	t.Parallel()
	f := newPlanFixture(t)
	f.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		SELECT 'wrun_' || i, 'home', 'dpl_1', 'w', 'running', 3, 8, $1, $1 FROM generate_series(1, 6) i`, day)
	f.exec(t, `
		INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, xid)
		SELECT 'home', 'wrun_' || i, seq, ('{step_created,step_completed,attr_set}'::text[])[1 + seq % 3], 'charge',
			3, $1, '{}', CASE WHEN seq = 1 THEN '4' WHEN seq = 8 AND i > 4 THEN '6' ELSE '5' END::xid8
		FROM generate_series(1, 6) i, generate_series(1, 8) seq`, day)
	for name, q := range map[string]EventQuery{
		"all": {}, "a type": {Types: []entities.EventType{"attr_set"}},
		"types": {Types: []entities.EventType{"step_completed", "step_created"}}, "an ID": {CorrelationID: "charge"},
	} {
		for _, common := range []bool{false, q.CorrelationID != ""} {
			whole := f.pages(t, q, pg.Page{Limit: 100}, common)
			if !slices.IsSortedFunc(whole, FeedCursor.Compare) || len(whole) != f.count(t, q) {
				t.Fatalf("%s: %v", name, whole)
			}
			for _, limit := range []int{1, 2, 7, 40} {
				if diff := cmp.Diff(whole, f.pages(t, q, pg.Page{Limit: limit}, common), cmp.AllowUnexported(FeedCursor{})); diff != "" {
					t.Errorf("%s, pages of %d (-want +got):\n%s", name, limit, diff)
				}
				back := f.pages(t, q, pg.Page{Limit: limit, Descending: true}, common)
				slices.Reverse(back)
				if diff := cmp.Diff(whole, back, cmp.AllowUnexported(FeedCursor{})); diff != "" {
					t.Errorf("%s, descending pages of %d (-want +got):\n%s", name, limit, diff)
				}
			}
		}
	}
}

// count returns how many events of the home project have one of the query's types.
func (f planFixture) count(t *testing.T, q EventQuery) (n int) {
	t.Helper()
	err := f.pool.QueryRow(t.Context(), `
		SELECT count(*) FROM events WHERE project = 'home' AND ($1::text[] IS NULL OR type = ANY ($1))`, q.Types).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pages returns the places of the home project's events, which it reads page by page. Common has it read an ID as if
// many events had it.
func (f planFixture) pages(t *testing.T, q EventQuery, p pg.Page, common bool) (places []FeedCursor) {
	t.Helper()
	for {
		s, err := newSearch(home, q, p, WithPayloads)
		if err == nil && p.Cursor != "" {
			s.from, err = ParseFeedCursor(p.Cursor)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.common = common
		rows, err := f.pool.Query(t.Context(), s.payloads(s.ofProject(), s.feedOrder()), s.args...)
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.collect(rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			places = append(places, FeedCursorOf(e))
		}
		if !page.More {
			return places
		}
		p.Cursor = places[len(places)-1].String()
	}
}
