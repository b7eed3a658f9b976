package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// extent is how much there is of a run.
func (f *fixture) extent(ctx context.Context, id entities.RunID) (e Extent, err error) {
	err = f.pool.QueryRow(ctx, `
		SELECT last_seq, (SELECT count(*) FROM streams s WHERE s.run_id = r.id),
			(SELECT count(closed_at) FROM streams s WHERE s.run_id = r.id),
			(SELECT coalesce(sum(chunks), 0)::bigint FROM streams s WHERE s.run_id = r.id)
		FROM runs r WHERE id = $1`, id).Scan(&e.LastSeq, &e.Streams, &e.Closed, &e.Chunks)
	return e, err
}

// TestRunThatGrowsAfterItsArchiveStays until it is archived as it is.
func TestRunThatGrowsAfterItsArchiveStays(t *testing.T) {
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
		r := f.retention(archiving(func(ctx context.Context, _ entities.Project, id entities.RunID) (Extent, error) {
			extent, err := f.extent(ctx, id)
			if archived++; archived == 1 {
				grow(id)
			}
			return extent, err
		}))
		wantPass(t, r, Passed{})
		if _, err := entities.RunByID(t.Context(), f.pool, home, id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantPass(t, r, Passed{Runs: 1})
		if archived != 2 {
			t.Errorf("%s: archived %d times, want 2", name, archived)
		}
	}
}

// TestChunkThatComesTooLateIsNotLost: it waits for the run to leave, and then begins a stream of its own.
func TestChunkThatComesTooLateIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.expired(t, 2*keep)
	f.write(t, home, id, "logs")
	streams := NewStreams(f.pool, f.hub, time.Now) // what begins now is no orphan of last week
	wrote := make(chan error, 1)
	r := f.retention(dropping(func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error {
		go func() {
			wrote <- streams.Write(context.WithoutCancel(t.Context()), home, id, "logs", [][]byte{[]byte("late")})
		}()
		f.waitForLock(t, wrote)
		return nil
	}))
	wantPass(t, r, Passed{Runs: 1})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	chunks, _, err := f.streams().Chunks(t.Context(), home, "logs", 0, 10)
	if err != nil || len(chunks) != 1 || string(chunks[0].Data) != "late" {
		t.Errorf("got chunks %v, error %v; want the late one", chunks, err)
	}
}

// TestRunThatCannotBeArchivedStays, and does not hold up others; when many cannot, the pass gives up.
func TestRunThatCannotBeArchivedStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := map[entities.RunID]bool{f.expired(t, 9*keep): true, f.expired(t, 5*keep): true}
	for i := range 4 {
		f.expired(t, time.Duration(i+4)*keep)
	}
	asked := 0
	r := f.retention(archiving(func(ctx context.Context, _ entities.Project, id entities.RunID) (Extent, error) {
		asked++
		if bad[id] {
			return Extent{}, errBroken
		}
		return f.extent(ctx, id)
	}))
	if done, err := r.Pass(t.Context()); done.Runs != 4 || !errors.Is(err, errBroken) {
		t.Errorf("got %+v, error %v: want the good ones gone, and to be told", done, err)
	}
	for range maxUnarchived + 5 {
		bad[f.expired(t, 20*keep)] = true
	}
	asked = 0
	if done, err := r.Pass(t.Context()); done.Runs != 0 || !errors.Is(err, errBroken) || asked != maxUnarchived {
		t.Errorf("got %+v, error %v after %d tries", done, err, asked)
	}
	clear(bad)
	wantPass(t, r, Passed{Runs: maxUnarchived + 7})
}
