package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// differences returns what verify reports about a run, without the run's ID.
func (f *fixture) differences(t *testing.T, id entities.RunID) []string {
	t.Helper()
	found := []string{}
	err := f.Verify(t.Context(), id, func(d Difference) {
		found = append(found, strings.TrimPrefix(d.String(), string(id)+" "))
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantSound fails the test unless verify finds nothing wrong with the run.
func (f *fixture) wantSound(t *testing.T, id entities.RunID) {
	t.Helper()
	if found := f.differences(t, id); len(found) > 0 {
		t.Errorf("verify found:\n%s", strings.Join(found, "\n"))
	}
}

// wantDifferences fails the test unless verify reports exactly these.
func (f *fixture) wantDifferences(t *testing.T, id entities.RunID, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.differences(t, id)); diff != "" {
		t.Errorf("differences differ (-want +got):\n%s", diff)
	}
}

// unguarded is a fixture whose database has no CHECK constraints, so that tests can damage rows.
func unguarded(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	rows, err := f.pool.Query(t.Context(), `
		SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'stepwell'::regnamespace
			AND conrelid::regclass::text IN ('runs', 'steps', 'hooks', 'waits', 'events', 'streams')
		UNION ALL
		SELECT format('ALTER DOMAIN %s DROP CONSTRAINT %I', contypid::regtype, conname) FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'stepwell'::regnamespace AND contypid <> 0`)
	if err != nil {
		t.Fatal(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(statements) == 0 {
		t.Fatalf("got constraints %v, error %v", statements, err)
	}
	for _, sql := range statements {
		f.exec(t, sql)
	}
	f.exec(t, `DROP INDEX events_hook_claim_key`)
	return f
}

// TestVerifyFindsDamageToEveryColumn, and rebuild repairs it.
func TestVerifyFindsDamageToEveryColumn(t *testing.T) {
	t.Parallel()
	f := unguarded(t)
	for _, table := range []string{"runs", "steps", "hooks", "waits", "run_attributes"} {
		for _, c := range f.columns(t, table) {
			for what, id := range map[string]entities.RunID{"live": f.full(t), "ended": f.ended(t)} {
				if what == "ended" && (table == "hooks" || table == "waits") {
					continue // it has none
				}
				t.Run(table+" "+c.name+" "+what, func(t *testing.T) {
					f.damage(t, table, c, id)
				})
			}
		}
	}
}

type column struct{ name, kind string }

// columns lists the columns of a table that the log determines.
func (f *fixture) columns(t *testing.T, table string) []column {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `
		SELECT attname, (CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END)::regtype::text
		FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'run_id'
			AND NOT ($1::text = 'runs' AND attname IN ('id', 'project', 'await'))`, table)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		return c, row.Scan(&c.name, &c.kind)
	})
	if err != nil || len(columns) < 5 {
		t.Fatalf("got columns %v, error %v", columns, err)
	}
	return columns
}

// damage changes one column of one row, and wants that alone reported and repaired.
func (f *fixture) damage(t *testing.T, table string, c column, id entities.RunID) {
	t.Helper()
	other, ok := map[string]string{
		"text": `%[2]s || '!'`, "integer": `%[2]s + 1000`, "bigint": `%[2]s + 1000`, "boolean": `NOT %[2]s`,
		"jsonb":                    `coalesce(%[2]s, '[]') || '{"damage": "done"}'`,
		"timestamp with time zone": `coalesce(%[2]s + interval '1 ms', 'epoch')`,
	}[c.kind]
	if !ok {
		t.Fatalf("no damage is defined for type %s", c.kind)
	}
	if c.name == "claimed_from" { // one object, where others are lists
		other = `'{"hookId": "damage"}'`
	}
	before := f.rows(t, id)
	key := "run_id"
	if table == "runs" {
		key = "id"
	}
	sql := fmt.Sprintf(`UPDATE %[1]s SET %[2]s = `+other+` WHERE ctid = (
		SELECT ctid FROM %[1]s WHERE %[3]s = $1 ORDER BY ctid LIMIT 1)`, table, c.name, key)
	f.exec(t, sql, id)
	found := f.differences(t, id)
	want := strings.ReplaceAll(c.name, "_", "")
	switch {
	case c.name == "id" || c.name == "key": // one is missing and one too many
		if len(found) != 2 || !strings.Contains(found[0], "log says none, row says exists") ||
			!strings.Contains(found[1], "log says exists, row says none") {
			t.Errorf("got %q", found)
		}
	case len(found) != 1 || !strings.Contains(strings.ToLower(found[0]), " "+want+": log says "):
		t.Errorf("got %q, want one difference in %s", found, want)
	}
	f.mustRebuild(t, id)
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("rows differ after the rebuild (-before +after):\n%s", diff)
	}
	f.wantSound(t, id)
}

// TestDifferencesReadAsOneLine shows what an operator sees.
func TestDifferencesReadAsOneLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string
		ended     bool
		want      []string
	}{
		{"status", `UPDATE steps SET status = 'failed' WHERE run_id = $1 AND id = 's1'`, false,
			[]string{`step s1: Status: log says "completed", row says "failed"`}},
		{"time", `UPDATE runs SET started_at = NULL WHERE id = $1`, false,
			[]string{`run: StartedAt: log says 2026-03-01T12:00:00Z, row says none`}},
		{"map", `UPDATE runs SET attributes = '{}' WHERE id = $1`, false,
			[]string{`run: Attributes: log says {"k":"v"}, row says {}`}},
		{"hook in another project", `UPDATE hooks SET project = 'stranger' WHERE run_id = $1`, false,
			[]string{`hook h1: Project: log says "home", row says "stranger"`}},
		{"no step", `DELETE FROM steps WHERE run_id = $1 AND id = 's2'`, false,
			[]string{`step s2: row: log says exists, row says none`}},
		{"no hook", `DELETE FROM hooks WHERE run_id = $1`, false,
			[]string{`hook h1: row: log says exists, row says none`}},
		{"no attributes", `DELETE FROM run_attributes WHERE run_id = $1`, true,
			[]string{`attribute k: row: log says exists, row says none`}},
		{"no waits", `DELETE FROM waits WHERE run_id = $1`, false,
			[]string{`wait w1: row: log says exists, row says none`, `wait w2: row: log says exists, row says none`}},
		{"a step from nowhere",
			`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
			VALUES ($1, 's0', 'ghost', 'pending', 0, 3, 99, now(), now())`, false,
			[]string{`step s0: row: log says none, row says exists`}},
		{"a wait of an ended run", `INSERT INTO waits (run_id, id, status, spec_version, created_at, updated_at)
			VALUES ($1, 'w1', 'waiting', 3, now(), now())`, true,
			[]string{`wait w1: row: log says none, row says exists`}},
		{"a hook of an ended run",
			`INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
			VALUES ($1, 'h1', 'home', 't', false, 3, 3, now())`, true,
			[]string{`hook h1: row: log says none, row says exists`}},
		{"a run revived", `UPDATE runs SET status = 'running', completed_at = NULL, end_seq = 0 WHERE id = $1`, true,
			[]string{`run: Status: log says "failed", row says "running"`, `run: EndSeq: log says 16, row says 0`,
				`run: CompletedAt: log says 2026-03-01T12:00:00Z, row says none`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := unguarded(t)
			id := f.full(t)
			if tt.ended {
				id = f.ended(t)
			}
			before := f.rows(t, id)
			f.exec(t, tt.sql, id)
			f.wantDifferences(t, id, tt.want...)
			f.mustRebuild(t, id)
			if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
				t.Errorf("rows differ after the rebuild (-before +after):\n%s", diff)
			}
		})
	}
}

// TestVerifyFindsIllegalEvents, and rebuild changes no rows of a run whose log has one.
func TestVerifyFindsIllegalEvents(t *testing.T) {
	t.Parallel()
	event := func(seq int, event, id, data string) string {
		return fmt.Sprintf(`INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
			VALUES ('home', $1, %d, '%s', '%s', 3, (SELECT updated_at FROM runs WHERE id = $1), '%s')`, seq, event, id, data)
	}
	for _, tt := range []struct {
		name  string
		sql   string
		ended bool
		want  string // part of the report
	}{
		{"hole", `DELETE FROM events WHERE run_id = $1 AND seq = 3`, false, `event 4: the event before it is missing`},
		{"end cut off", `DELETE FROM events WHERE run_id = $1 AND seq > 14`, false, `run: LastSeq: log says 14, row says 15`},
		{"beginning cut off", `DELETE FROM events WHERE run_id = $1 AND seq = 1`, false, `log: the log creates no run`},
		{"all gone", `DELETE FROM events WHERE run_id = $1`, false, `log: the log creates no run`},
		{"back in time", `UPDATE events SET created_at = created_at - interval '1 s' WHERE run_id = $1 AND seq = 5`, false,
			`event 5: it is older than the event before it`},
		{"a second creation", event(16, "run_created", "", "{}"), false, `event 16: run_created is not legal: `},
		{"a second start", event(16, "run_started", "", "{}"), false, `event 16: run_started is not legal: already recorded`},
		{"a second end", event(18, "run_completed", "", "{}"), true, `event 18: run_completed is not legal: `},
		{"an attribute after the end", event(18, "attr_set", "", `{"changes": [{"key": "a", "value": "b"}]}`), true,
			`event 18: attr_set is not legal: `},
		{"an attribute out of bounds", event(16, "attr_set", "", `{"changes": [{"key": "", "value": "b"}]}`), false,
			`event 16: attr_set is not legal: `},
		{"a second result", event(16, "step_failed", "s1", "{}"), false,
			`event 16: step_failed is not legal: step_failed on step s1: it is already completed`},
		{"a result of nothing", event(16, "step_completed", "s9", "{}"), false,
			`event 16: step_completed is not legal: step s9 not found`},
		{"a step after the end", event(18, "step_created", "s9", "{}"), true, `event 18: step_created is not legal: `},
		{"a hook created twice", `WITH disposed AS (
			UPDATE events SET type = 'hook_disposed' WHERE run_id = $1 AND seq = 12)
			` + event(16, "hook_created", "h1", `{"token": "t"}`), false,
			`event 16: hook_created is not legal: hook_created on hook h1: it is already disposed`},
		{"received by a loser", `UPDATE events SET type = 'hook_conflict' WHERE run_id = $1 AND seq = 11`, false,
			`event 12: hook_received is not legal: hook h1 not found`},
		{"received after the end (I7)", event(18, "hook_received", "h1", "{}"), true,
			`event 18: hook_received is not legal: hook h1 not found`},
		{"a wait over twice", event(16, "wait_completed", "w2", "{}"), false, `event 16: wait_completed is not legal: `},
		{"a wait cancelled after its end", event(16, "wait_cancelled", "w2", "{}"), false, `event 16: wait_cancelled is not legal: `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := unguarded(t)
			id := f.full(t)
			if tt.ended {
				id = f.ended(t)
			}
			f.exec(t, tt.sql, id)
			before := f.rows(t, id)
			found := f.differences(t, id)
			if !strings.Contains("\n"+strings.Join(found, "\n"), "\n"+tt.want) {
				t.Errorf("got\n%s\nwant %s", strings.Join(found, "\n"), tt.want)
			}
			got, err := f.Rebuild(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if tt.name == "end cut off" { // a log that lacks its last events is legal
				if !got.Changed || len(got.Remaining) > 0 {
					t.Errorf("got %+v, want the rows of the remaining log", got)
				}
				return
			}
			if got.Changed || len(got.Remaining) == 0 {
				t.Errorf("got %+v, want nothing changed, and why", got)
			}
			if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
				t.Errorf("rebuild changed rows (-before +after):\n%s", diff)
			}
		})
	}
}

func TestVerifyCountsChunks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sql, want string }{
		{"counter", `UPDATE streams SET chunks = 5`, `stream logs: it counts 5 chunks and has 3`},
		{"chunk gone", `DELETE FROM stream_chunks WHERE idx = 2`, `stream logs: it counts 3 chunks and has 2`},
		{"hole", `DELETE FROM stream_chunks WHERE idx = 1`,
			`stream logs: it counts 3 chunks and has 2, which are not numbered from 0 without a gap`},
		{"no chunks", `DELETE FROM stream_chunks`, `stream logs: it counts 3 chunks and has 0`},
		{"numbers", `UPDATE stream_chunks SET idx = 9 WHERE idx = 2`,
			`stream logs: it counts 3 chunks and has 3, which are not numbered from 0 without a gap`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			id := f.run(t)
			streams := read.NewStreams(f.pool, pg.NewHub(f.pool, "test", slog.New(slog.DiscardHandler)), f.clock.now)
			if err := streams.Write(t.Context(), home, id, "logs", [][]byte{{1}, {2}, {3}}); err != nil {
				t.Fatal(err)
			}
			f.wantSound(t, id)
			f.exec(t, tt.sql)
			f.wantDifferences(t, id, tt.want)
			got, err := f.Rebuild(t.Context(), id)
			if err != nil || got.Changed || len(got.Remaining) != 1 {
				t.Errorf("got %+v, %v: want it reported only, because streams are not in the log", got, err)
			}
		})
	}
}

func TestVerifyAndRebuildFailForAMissingRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := f.Verify(t.Context(), theRun, func(d Difference) { t.Errorf("reported %s", d) })
	if !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("verify: got %v", err)
	}
	if _, err := f.Rebuild(t.Context(), theRun); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("rebuild: got %v", err)
	}
}

func TestRunsAreListedInOrderFromAnyID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 5 {
		f.run(t)
	}
	if _, err := f.Append(t.Context(), stranger, runCreated(newRunID())); err != nil {
		t.Fatal(err)
	}
	walk := func(project entities.Project, after entities.RunID) (ids []entities.RunID) {
		for {
			page, err := f.Runs(t.Context(), project, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return ids
			}
			ids = append(ids, page...)
			after = page[len(page)-1]
		}
	}
	all, ours := walk("", ""), walk(home, "")
	for _, tt := range []struct {
		name string
		runs []entities.RunID
		want int
	}{{"all", all, 6}, {"ours", ours, 5}, {"the stranger's", walk(stranger, ""), 1}, {"nobody's", walk("nobody", ""), 0}} {
		if len(tt.runs) != tt.want || !slices.IsSorted(tt.runs) || len(slices.Compact(tt.runs)) != tt.want {
			t.Errorf("%s: got %v, want %d in their order", tt.name, tt.runs, tt.want)
		}
	}
	if diff := cmp.Diff(ours[3:], walk(home, ours[2])); diff != "" {
		t.Errorf("from the middle (-want +got):\n%s", diff)
	}
}

// TestRunsVerifiedTogether have the differences of each one alone, part by part in the order of the runs. One has more
// steps than a span, so spans end inside a run and go on into the next ones.
func TestRunsVerifiedTogether(t *testing.T) {
	t.Parallel()
	f := unguarded(t)
	ids := []entities.RunID{theRun} // does not exist
	for range 2*verifiedTogether + 5 {
		ids = append(ids, f.run(t))
	}
	slices.Sort(ids)
	at := func(i int) entities.RunID {
		if ids[i] == theRun {
			return ids[i+1]
		}
		return ids[i]
	}
	long := at(10)
	for first := 0; first < spanSize+spanSize/2; first += 250 {
		var steps []eventlog.Request
		for i := range 250 {
			steps = append(steps, on(long, entities.EventStepCreated, fmt.Sprintf("s%06d", first+i)))
		}
		if _, err := f.AppendBatch(t.Context(), home, long, steps); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 11, verifiedTogether + 3, 2*verifiedTogether + 2} {
		f.exec(t, `UPDATE runs SET error_code = 'damaged' WHERE id = $1`, at(i))
	}
	f.exec(t, `DELETE FROM steps WHERE run_id = $1 AND id IN ('s000000', $2, 's001499')`, long, fmt.Sprintf("s%06d", spanSize))
	f.exec(t, `DELETE FROM events WHERE run_id = $1`, at(20))
	for _, run := range []entities.RunID{at(9), at(12), at(20)} { // a run that its log does not create has no rows to compare
		f.exec(t, `INSERT INTO steps SELECT (jsonb_populate_record(s, jsonb_build_object('run_id', $2::text, 'id', 'zzz'))).*
			FROM steps s WHERE run_id = $1 LIMIT 1`, long, run)
	}

	var alone, together []string
	var done []entities.RunID
	for _, id := range ids {
		err := f.Verify(t.Context(), id, func(d Difference) { alone = append(alone, d.String()) })
		if err != nil && !errors.Is(err, entities.ErrRunNotFound) {
			t.Fatal(err)
		}
	}
	last := 0
	err := f.VerifyAll(t.Context(), ids, func(d Difference) {
		together = append(together, d.String())
		part := slices.Index(ids, d.RunID) / verifiedTogether
		if part < last || len(done) != part*verifiedTogether {
			t.Errorf("%s: reported in part %d, after %d runs", d, part, len(done))
		}
		last = part
	}, func(part []entities.RunID) { done = append(done, part...) })
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(alone)
	slices.Sort(together)
	if diff := cmp.Diff(alone, together); diff != "" || len(alone) != 10 {
		t.Errorf("%d differences; verified together they differ (-alone +together):\n%s", len(alone), diff)
	}
	if !slices.Equal(done, ids) {
		t.Errorf("%d of %d runs are done", len(done), len(ids))
	}
}

// TestVerifyingTogetherEndsWithTheFirstError, and waits for what it began: nothing is done after it.
func TestVerifyingTogetherEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ids []entities.RunID
	for range 3 {
		ids = append(ids, f.run(t))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.VerifyAll(ctx, ids, func(d Difference) { t.Errorf("reported %s", d) }, func([]entities.RunID) {
		t.Error("runs are done")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
