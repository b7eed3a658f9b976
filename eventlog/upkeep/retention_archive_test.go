package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// size counts what a run has, independently of the code under test.
func (f *fixture) size(ctx context.Context, id entities.RunID) (e RunSize, err error) {
	err = f.pool.QueryRow(ctx, `
		SELECT last_seq, (SELECT count(*) FROM streams s WHERE s.run_id = r.id),
			(SELECT count(closed_at) FROM streams s WHERE s.run_id = r.id),
			(SELECT coalesce(sum(chunks), 0)::bigint FROM streams s WHERE s.run_id = r.id)
		FROM runs r WHERE id = $1`, id).Scan(&e.LastSeq, &e.Streams, &e.Closed, &e.Chunks)
	return e, err
}

// TestRunThatGrowsAfterItWasArchivedIsKept until it is archived again.
func TestRunThatGrowsAfterItWasArchivedIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, grow := range map[string]func(entities.RunID){
		"event":  func(id entities.RunID) { f.must(t, on(id, entities.EventStepCompleted, "s2")) },
		"stream": func(id entities.RunID) { f.write(t, home, id, "new of "+string(id)) },
		"chunk":  func(id entities.RunID) { f.write(t, home, id, "of "+string(id)) },
		"close": func(id entities.RunID) {
			if err := f.streams().Close(t.Context(), home, id, entities.StreamName("of "+id)); err != nil {
				t.Error(err)
			}
		},
	} {
		id := f.full(t)
		f.must(t, onRun(id, entities.EventRunCompleted))
		f.write(t, home, id, "of "+string(id))
		f.exec(t, `UPDATE runs SET completed_at = now() - interval '2 h' WHERE id = $1`, id)
		archived := 0
		r := f.retention(archiving(func(ctx context.Context, _ entities.Project, id entities.RunID) (RunSize, error) {
			size, err := f.size(ctx, id)
			if archived++; archived == 1 {
				grow(id)
			}
			return size, err
		}))
		wantPass(t, r, PassResult{})
		if _, err := store.RunByID(t.Context(), f.pool, home, id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantPass(t, r, PassResult{Runs: 1})
		if archived != 2 {
			t.Errorf("%s: archived %d times, want 2", name, archived)
		}
	}
}

// TestChunkDuringRemovalStartsANewStream: the write waits for the removal of the run and is not lost.
func TestChunkDuringRemovalStartsANewStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.expired(t, 2*keep)
	f.write(t, home, id, "logs")
	streams := read.NewStreams(f.pool, f.hub, time.Now) // a stream that begins now is not yet old enough to be an orphan
	wrote := make(chan error, 1)
	r := f.retention(deleting(func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error {
		go func() {
			wrote <- streams.Write(context.WithoutCancel(t.Context()), home, id, "logs", [][]byte{[]byte("late")})
		}()
		f.waitForLock(t, wrote)
		return nil
	}))
	wantPass(t, r, PassResult{Runs: 1})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	chunks, _, err := f.streams().Chunks(t.Context(), home, "logs", 0, 10)
	if err != nil || len(chunks) != 1 || string(chunks[0].Data) != "late" {
		t.Errorf("got chunks %v, error %v; want the late one", chunks, err)
	}
}

// TestRunThatCannotBeArchivedIsKept and does not block others.
func TestRunThatCannotBeArchivedIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := map[entities.RunID]bool{f.expired(t, 9*keep): true, f.expired(t, 5*keep): true}
	for i := range 4 {
		f.expired(t, time.Duration(i+4)*keep)
	}
	r := f.retention(archiving(func(ctx context.Context, _ entities.Project, id entities.RunID) (RunSize, error) {
		if bad[id] {
			return RunSize{}, errBroken
		}
		return f.size(ctx, id)
	}))
	want := PassResult{Runs: 4, Unarchived: 2}
	if done, err := r.Pass(t.Context()); done != want || !errors.Is(err, errBroken) {
		t.Errorf("got %+v, error %v: want the good ones removed, and the error", done, err)
	}
	clear(bad)
	wantPass(t, r, PassResult{Runs: 2})
}

// exporting archives by exporting the run to nowhere.
func (f *fixture) exporting(ctx context.Context, _ entities.Project, id entities.RunID) (RunSize, error) {
	return f.Export(ctx, id, func(Record) error { return nil })
}

// TestDamagedRunsBlockNothing wants the runs after them, other projects, streams and hooks removed, however many runs are
// damaged.
func TestDamagedRunsBlockNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hole := f.expired(t, 9*keep)
	f.exec(t, `
		INSERT INTO runs SELECT id || n, project, deployment_id, workflow_name, status, spec_version, attributes, error_code,
			last_seq, end_seq, created_at, updated_at, started_at, completed_at
		FROM runs, generate_series(1, $1) n`, 2*maxBatchRuns) // no events at all
	f.exec(t, `DELETE FROM events WHERE run_id = $1 AND seq = 2`, hole)
	f.write(t, home, f.expired(t, 2*keep), "whole")
	other := f.expired(t, 2*keep)
	f.exec(t, `UPDATE runs SET project = 'stranger' WHERE id = $1`, other)
	f.write(t, home, "wrun_hc_1", "orphan")
	f.exec(t, `UPDATE streams SET created_at = now() - interval '1 year' WHERE name = 'orphan'`)
	r := f.retention(archiving(f.exporting))
	want := PassResult{Runs: 2, Streams: 1, Unarchived: 2*maxBatchRuns + 1}
	if done, err := r.Pass(t.Context()); done != want || !errors.Is(err, ErrUnreadable) {
		t.Errorf("got %+v, error %v; want %+v", done, err, want)
	}
}

// TestArchiveThatIsDownStopsTheRemovalOfRuns of all projects after a number of failures in a row. Streams and hooks are
// removed regardless.
func TestArchiveThatIsDownStopsTheRemovalOfRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 2*maxArchiveFailures + 2 {
		id := f.expired(t, time.Duration(99-i)*keep)
		f.exec(t, `UPDATE runs SET project = $2 WHERE id = $1`, id, []string{"a", "b"}[i%2])
	}
	retained := f.expired(t, keep/2)
	f.exec(t, `INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at, expires_at)
		VALUES ($1, 'h1', 'home', 'retained', false, 3, 11, now(), now() - interval '1 h')`, retained)
	f.write(t, home, "wrun_hc_1", "orphan")
	f.exec(t, `UPDATE streams SET created_at = now() - interval '1 year'`)
	asked, healthy := 0, func(int) bool { return false }
	r := f.retention(archiving(func(ctx context.Context, _ entities.Project, id entities.RunID) (RunSize, error) {
		if asked++; !healthy(asked) {
			return RunSize{}, errBroken
		}
		return f.size(ctx, id)
	}))
	want := PassResult{Streams: 1, Unarchived: maxArchiveFailures}
	if done, err := r.Pass(t.Context()); done != want || !errors.Is(err, errBroken) || asked != maxArchiveFailures {
		t.Errorf("got %+v, error %v after %d tries; want %+v", done, err, asked, want)
	}
	if got := len(f.rows(t, retained).Hooks); got != 0 {
		t.Errorf("the expired hook is still there")
	}
	// An occasional success keeps the archive in use.
	asked, healthy = 0, func(n int) bool { return n == maxArchiveFailures || n > maxArchiveFailures+2 }
	want = PassResult{Runs: maxArchiveFailures + 1, Unarchived: maxArchiveFailures + 1}
	if done, err := r.Pass(t.Context()); done != want || !errors.Is(err, errBroken) {
		t.Errorf("got %+v, error %v; want %+v", done, err, want)
	}
	healthy = func(int) bool { return true }
	wantPass(t, r, PassResult{Runs: maxArchiveFailures + 1})
}

// TestRunsRemovedByOthersAreNoArchiveFailures: another process removes or archives the run before the archive reads it,
// meanwhile, or afterwards.
func TestRunsRemovedByOthersAreNoArchiveFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 3 * maxArchiveFailures {
		f.expired(t, time.Duration(99-i)*keep)
	}
	asked := 0
	r := f.retention(archiving(func(ctx context.Context, project entities.Project, id entities.RunID) (RunSize, error) {
		asked++
		switch asked % 3 {
		case 0:
			return RunSize{}, fmt.Errorf("archive: %w", entities.ErrConflict)
		case 1:
			f.exec(t, `DELETE FROM runs WHERE id = $1`, id)
			return f.exporting(ctx, project, id)
		default:
			return f.Export(ctx, id, func(r Record) error {
				f.exec(t, `DELETE FROM runs WHERE id = $1`, id)
				return nil
			})
		}
	}))
	wantPass(t, r, PassResult{})
	if asked != 3*maxArchiveFailures {
		t.Errorf("asked for %d runs, want all", asked)
	}
}

// TestRacingRetentionsWithAnArchive wants each run removed once, and the work of another pass not reported as a failure.
func TestRacingRetentionsWithAnArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const runs = 60
	for i := range runs {
		f.expired(t, time.Duration(99-i)*keep)
	}
	var removed atomic.Int64
	for _, err := range race(4, func(int) error {
		done, err := f.retention(archiving(f.exporting)).Pass(t.Context())
		removed.Add(int64(done.Runs))
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if removed.Load() != runs {
		t.Errorf("%d runs were removed, want %d", removed.Load(), runs)
	}
}

// TestRunsOfAProjectThatLeavesAreNotArchived: its rows may not change any more, and the archive of the other cell is to
// have them.
func TestRunsOfAProjectThatLeavesAreNotArchived(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.expired(t, 2*keep)
	f.exec(t, `INSERT INTO departures (project, here, cell, target) SELECT project, 'eu1', 'eu2', '' FROM runs WHERE id = $1`, id)
	r := f.retention(archiving(func(context.Context, entities.Project, entities.RunID) (RunSize, error) {
		t.Error("the run was archived")
		return RunSize{}, nil
	}))
	wantPass(t, r, PassResult{})
}
