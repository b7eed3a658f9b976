package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

const keep = time.Hour

// retention keeps runs for an hour and archives nothing.
func (f *fixture) retention(change ...func(*RetentionOptions)) *Retention {
	o := RetentionOptions{Keep: keep, DeleteRelated: deleteNothing}
	for _, c := range change {
		c(&o)
	}
	return NewRetention(f.pool, o)
}

func deleteNothing(context.Context, pgx.Tx, entities.Project, []entities.RunID) error { return nil }

func archiving(archive func(context.Context, entities.Project, entities.RunID) (RunSize, error)) func(*RetentionOptions) {
	return func(o *RetentionOptions) { o.Archive = archive }
}

func deleting(remove func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error) func(*RetentionOptions) {
	return func(o *RetentionOptions) { o.DeleteRelated = remove }
}

// expired creates a run that ended that long ago by the database's clock.
func (f *fixture) expired(t *testing.T, age time.Duration) entities.RunID {
	t.Helper()
	id := f.ended(t)
	f.exec(t, `UPDATE runs SET completed_at = now() - $2::interval WHERE id = $1`, id, age)
	f.exec(t, `INSERT INTO step_results (run_id, step_id, result) VALUES ($1, 's1', '1')`, id)
	return id
}

func (f *fixture) streams() *read.Streams {
	return read.NewStreams(f.pool, pg.NewHub(f.pool, "test", slog.New(slog.DiscardHandler)), f.clock.now)
}

func (f *fixture) write(t *testing.T, project entities.Project, id entities.RunID, name string) {
	t.Helper()
	err := f.streams().Write(t.Context(), project, id, entities.StreamName(name), [][]byte{[]byte("a"), []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
}

// wantPass fails the test unless a pass removes that much.
func wantPass(t *testing.T, r *Retention, want PassResult) {
	t.Helper()
	if got, err := r.Pass(t.Context()); err != nil || got != want {
		t.Errorf("the pass removed %+v, error %v; want %+v", got, err, want)
	}
}

// contents returns each table as a text.
func (f *fixture) contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, table := range []string{"runs", "events", "steps", "hooks", "waits", "streams", "stream_chunks", "messages", "step_results"} {
		var text string
		err := f.pool.QueryRow(t.Context(),
			`SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM `+table+` r`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		all[table] = text
	}
	return all
}

// TestExpiredRunsAreRemovedCompletely, and nothing else is.
func TestExpiredRunsAreRemovedCompletely(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	live, fresh := f.full(t), f.expired(t, keep-time.Minute)
	f.exec(t, `UPDATE runs SET created_at = created_at - interval '1 year' WHERE id = $1`, live)
	retained := f.expired(t, 2*keep)
	f.exec(t, `INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at, expires_at)
		VALUES ($1, 'h1', 'home', 'retained', false, 3, 11, now(), now() + interval '1 h')`, retained)
	for _, id := range []entities.RunID{live, fresh, retained} {
		f.write(t, home, id, "stream of "+string(id))
	}
	before := f.contents(t)

	var gone []entities.RunID
	for i := range 3 {
		id := f.expired(t, keep+time.Duration(i+1)*time.Minute)
		f.write(t, home, id, fmt.Sprint("one ", i))
		f.write(t, home, id, fmt.Sprint("two ", i))
		gone = append(gone, id)
	}
	var deleted []entities.RunID
	r := f.retention(deleting(func(_ context.Context, _ pgx.Tx, project entities.Project, ids []entities.RunID) error {
		if project != home {
			t.Errorf("deleted runs of project %q", project)
		}
		deleted = append(deleted, ids...)
		return nil
	}))
	wantPass(t, r, PassResult{Runs: 3})
	slices.Sort(gone)
	slices.Sort(deleted)
	if diff := cmp.Diff(gone, deleted); diff != "" {
		t.Errorf("the deleted runs differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, f.contents(t)); diff != "" {
		t.Errorf("the remaining rows differ (-before +after):\n%s", diff)
	}
	wantPass(t, r, PassResult{})
	f.exec(t, `UPDATE hooks SET expires_at = now() - interval '1 s' WHERE token = 'retained'`)
	wantPass(t, r, PassResult{Runs: 1})
	f.refused(t, on(retained, entities.EventStepCompleted, "s2"), entities.ErrRunNotFound)
}

// TestLiveRunsAreNeverRemoved at any age.
func TestLiveRunsAreNeverRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.full(t)
	f.run(t)
	f.exec(t, `UPDATE runs SET created_at = created_at - interval '9 years', updated_at = updated_at - interval '9 years'`)
	before := f.contents(t)
	wantPass(t, f.retention(func(o *RetentionOptions) { o.Keep = 1 }), PassResult{})
	if diff := cmp.Diff(before, f.contents(t)); diff != "" {
		t.Errorf("rows differ (-before +after):\n%s", diff)
	}
}

func TestProjectRetentionOverridesTheDefault(t *testing.T) {
	t.Parallel()
	hour, day := time.Hour, 24*time.Hour
	for _, tt := range []struct {
		name string
		keep time.Duration
		ages map[entities.Project]*time.Duration
		want []string
	}{
		{"for ever", 0, nil, []string{"a new", "a old", "b new", "b old", "c new", "c old"}},
		{"default", day, nil, []string{"a new", "b new", "c new"}},
		{"one shorter", 0, map[entities.Project]*time.Duration{"b": &day}, []string{"a new", "a old", "b new", "c new", "c old"}},
		{"one for ever", day, map[entities.Project]*time.Duration{"b": nil}, []string{"a new", "b new", "b old", "c new"}},
		{"one longer, one shorter", day, map[entities.Project]*time.Duration{"a": ptr(100 * day), "c": &hour},
			[]string{"a new", "a old", "b new"}},
		{"a project without runs", 0, map[entities.Project]*time.Duration{"nobody": &hour},
			[]string{"a new", "a old", "b new", "b old", "c new", "c old"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, project := range []string{"a", "b", "c"} {
				for what, age := range map[string]time.Duration{"new": 2 * hour, "old": 2 * day} {
					id := f.expired(t, age)
					f.exec(t, `UPDATE runs SET project = $2, workflow_name = $3 WHERE id = $1`, id, project, project+" "+what)
				}
			}
			r := f.retention(func(o *RetentionOptions) { o.Keep = tt.keep })
			for project, age := range tt.ages {
				if err := admin.PutRetention(t.Context(), f.pool, admin.Retention{Project: project, Keep: age}); err != nil {
					t.Fatal(err)
				}
			}
			wantPass(t, r, PassResult{Runs: 6 - len(tt.want)})
			rows, err := f.pool.Query(t.Context(), `SELECT workflow_name FROM runs ORDER BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("the remaining rows differ (-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

// TestFailedBatchDeletesNothing fails at the first statement, in the middle, at the last, and at the commit.
func TestFailedBatchDeletesNothing(t *testing.T) {
	t.Parallel()
	trigger := func(table, when string) string {
		return fmt.Sprintf(`
			CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
			CREATE CONSTRAINT TRIGGER refuse AFTER DELETE ON %s %s FOR EACH ROW EXECUTE FUNCTION refuse()`, table, when)
	}
	for name, sql := range map[string]string{
		"related rows": "",
		"chunks":       trigger("stream_chunks", ""), "streams": trigger("streams", ""), "events": trigger("events", ""),
		"steps": trigger("steps", ""), "runs": trigger("runs", ""), "commit": trigger("runs", "DEFERRABLE INITIALLY DEFERRED"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for range 3 {
				f.write(t, home, f.expired(t, 2*keep), string(newRunID()))
			}
			before := f.contents(t)
			r := f.retention(deleting(func(ctx context.Context, tx pgx.Tx, _ entities.Project, _ []entities.RunID) error {
				if sql == "" {
					return errBroken
				}
				return nil
			}))
			if sql != "" {
				f.exec(t, sql)
			}
			if done, err := r.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") || done.Runs > 0 {
				t.Errorf("got %+v, error %v", done, err)
			}
			if diff := cmp.Diff(before, f.contents(t)); diff != "" {
				t.Errorf("rows were deleted (-before +after):\n%s", diff)
			}
			if sql != "" {
				f.exec(t, `DROP FUNCTION refuse CASCADE`)
				wantPass(t, r, PassResult{Runs: 3})
			}
		})
	}
}

// TestCrashBeforeTheCommitDeletesNothing loses the connection after all deletions.
func TestCrashBeforeTheCommitDeletesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, home, f.expired(t, 2*keep), "stream")
	before := f.contents(t)
	r := f.retention(deleting(func(ctx context.Context, tx pgx.Tx, _ entities.Project, ids []entities.RunID) error {
		if _, err := tx.Exec(ctx, `DELETE FROM runs WHERE id = ANY ($1)`, ids); err != nil {
			return err
		}
		return tx.Conn().Close(ctx)
	}))
	if done, err := r.Pass(t.Context()); err == nil || done.Runs > 0 {
		t.Errorf("got %+v, error %v", done, err)
	}
	if diff := cmp.Diff(before, f.contents(t)); diff != "" {
		t.Errorf("rows were deleted (-before +after):\n%s", diff)
	}
	// The run is locked until Postgres notices that the connection is lost.
	for deadline := time.Now().Add(testTimeout); f.openTransactions(t) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	wantPass(t, f.retention(), PassResult{Runs: 1})
}

// openTransactions counts the open transactions of the database, except its own.
func (f *fixture) openTransactions(t *testing.T) (n int) {
	t.Helper()
	err := f.pool.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&n)
	if err != nil {
		t.Errorf("count transactions: %v", err)
	}
	return n
}

func TestI4RacingRetentionsRemoveEachRunOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.expired(t, 2*keep)
	const copies = 3*maxBatchRuns + 7
	f.exec(t, `
		INSERT INTO runs SELECT id || n, project, deployment_id, workflow_name, status, spec_version, attributes, error_code,
			last_seq, end_seq, created_at, updated_at, started_at, completed_at
		FROM runs, generate_series(1, $1) n`, copies)
	f.exec(t, `INSERT INTO events (run_id, seq, type, correlation_id, spec_version, created_at, data, payload, project)
		SELECT r.id, seq, type, correlation_id, e.spec_version, e.created_at, data, payload, r.project
		FROM runs r, events e WHERE e.run_id = $1 AND r.id <> $1`, id)
	var sum atomic.Int64
	var mu sync.Mutex
	deleted := map[entities.RunID]int{}
	for _, err := range race(4, func(int) error {
		done, err := f.retention(deleting(func(_ context.Context, _ pgx.Tx, _ entities.Project, ids []entities.RunID) error {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				deleted[id]++
			}
			return nil
		})).Pass(t.Context())
		sum.Add(int64(done.Runs))
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if sum.Load() != copies+1 || len(deleted) != copies+1 {
		t.Errorf("%d runs were removed, %d different ones; want %d", sum.Load(), len(deleted), copies+1)
	}
	for id, n := range deleted {
		if n != 1 {
			t.Errorf("run %s was deleted %d times", id, n)
		}
	}
	for table, text := range f.contents(t) {
		if text != "" {
			t.Errorf("table %s is not empty", table)
		}
	}
}

// TestRetentionSkipsLockedRuns and removes the others.
func TestRetentionSkipsLockedRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := f.expired(t, 3*keep)
	f.expired(t, 2*keep)
	err := pg.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		if _, err := store.LockRunOfAny(t.Context(), tx, held); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		done, err := f.retention().Pass(ctx)
		if done.Runs != 1 {
			t.Errorf("%d runs were removed, want the other one", done.Runs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPass(t, f.retention(), PassResult{Runs: 1})
}

func TestLongDeletionIgnoresTheStatementTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.expired(t, 2*keep)
	f.exec(t, `
		CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN OLD; END $$;
		CREATE TRIGGER linger BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION linger();
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 3000', current_database()); END $$`)
	f.pool.Reset() // new sessions have the setting
	wantPass(t, f.retention(), PassResult{Runs: 1})
}

// TestAppendsRacingRetention: an append that comes first is deleted with the run, and a later one does not find the run.
// Neither fails otherwise.
func TestAppendsRacingRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 8 {
		id := f.full(t)
		f.must(t, onRun(id, entities.EventRunCompleted))
		f.exec(t, `UPDATE runs SET completed_at = now() - interval '2 h' WHERE id = $1`, id)
		var appended error
		for i, err := range race(2, func(i int) error {
			if i == 1 {
				_, appended = f.Append(t.Context(), home, on(id, entities.EventStepCompleted, "s2"))
				return nil
			}
			_, err := f.retention().Pass(t.Context())
			return err
		}) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		if appended != nil && !errors.Is(appended, entities.ErrRunNotFound) {
			t.Errorf("append: %v", appended)
		}
		if _, err := f.retention().Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for table, text := range f.contents(t) {
		if text != "" {
			t.Errorf("table %s is not empty", table)
		}
	}
}

func TestLimitRowsEndsABatchAtTheRunThatFillsIt(t *testing.T) {
	t.Parallel()
	type runs [][2]int64 // events and chunks
	for name, tt := range map[string]struct {
		runs runs
		want int
	}{
		"small":         {runs{{1, 1}, {2, 0}, {3, 7}}, 3},
		"one is all":    {runs{{maxBatchRows * 50, 0}, {1, 0}}, 1},
		"in the end":    {runs{{1, 0}, {maxBatchRows - 1, 0}}, 2},
		"in the middle": {runs{{1, 0}, {maxBatchRows - 2, 0}, {1, 0}, {1, 0}}, 3},
		"by chunks":     {runs{{1, 0}, {1, maxBatchRows}, {1, 0}}, 2},
		"by both":       {runs{{maxBatchRows / 2, 0}, {1, maxBatchRows / 2}, {1, 0}}, 2},
	} {
		var batch []store.ExpiredRun
		for _, n := range tt.runs {
			batch = append(batch, store.ExpiredRun{EndedRun: store.EndedRun{LastSeq: n[0]}, Chunks: n[1]})
		}
		if got := len(limitRows(batch)); got != tt.want {
			t.Errorf("%s: got %d runs, want %d", name, got, tt.want)
		}
	}
}

// TestChunksCountAsRowsOfABatch: the chunks of all streams of a run count together.
func TestChunksCountAsRowsOfABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 5 {
		f.expired(t, time.Duration(9-i)*keep)
	}
	f.exec(t, `
		INSERT INTO streams (project, name, run_id, chunks, created_at)
		SELECT project, id || n, id, 0, now() FROM (SELECT project, id FROM runs ORDER BY completed_at OFFSET 1 LIMIT 2) r,
			generate_series(1, 2) n`)
	f.exec(t, `INSERT INTO stream_chunks SELECT id, idx, '' FROM streams, generate_series(0, $1) idx`, maxBatchRows/2-1)
	f.exec(t, `UPDATE streams SET chunks = $1`, maxBatchRows/2)
	var batches []int
	r := f.retention(deleting(func(_ context.Context, _ pgx.Tx, _ entities.Project, ids []entities.RunID) error {
		batches = append(batches, len(ids))
		return nil
	}))
	wantPass(t, r, PassResult{Runs: 5})
	if diff := cmp.Diff([]int{2, 1, 2}, batches); diff != "" {
		t.Errorf("batches differ (-want +got):\n%s", diff)
	}
}

// TestExpiredHooksAreRemoved by the next pass, and hooks that are still retained are not.
func TestExpiredHooksAreRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	retained := func(until time.Time) entities.RunID {
		r := hookCreated(theRun, "hook_1", "token "+until.String())
		r.Data.TokenRetentionUntil = &until
		return f.run(t, onRun(theRun, entities.EventRunStarted), r, onRun(theRun, entities.EventRunCompleted))
	}
	over, kept := retained(day.Add(time.Hour)), retained(day.Add(2*time.Hour))
	f.exec(t, `UPDATE hooks SET expires_at = now() + interval '1 h' WHERE run_id = $1`, kept)
	r := NewRetention(f.pool, RetentionOptions{DeleteRelated: deleteNothing}) // which keeps runs forever
	wantPass(t, r, PassResult{})
	for id, want := range map[entities.RunID]int{over: 0, kept: 1} {
		if got := len(f.rows(t, id).Hooks); got != want {
			t.Errorf("run %s has %d hooks, want %d", id, got, want)
		}
	}
	f.clock.move(time.Hour)
	f.wantSound(t, over)
}
