package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func (f *fixture) database() *Database { return NewDatabase(f.pool, f.maintainer) }

// stored returns the file of the run in the database; nil if it has none.
func (f *fixture) stored(t *testing.T) []byte {
	t.Helper()
	r, err := f.database().Open(t.Context(), project, f.run)
	if errors.Is(err, runfile.ErrNotArchived) {
		return nil
	}
	check.NoError(t, err)
	return check.Value(io.ReadAll(r))(t)
}

// wantStored fails the test unless the database has this file, and parts of no other.
func (f *fixture) wantStored(t *testing.T, want []byte) {
	t.Helper()
	if got := f.stored(t); !bytes.Equal(got, want) {
		t.Errorf("the database has a file of %d bytes, want one of %d, or they differ", len(got), len(want))
	}
	parts := (len(want) + rowSize - 1) / rowSize
	testdb.In(f.pool).Want(t, "parts", parts, `SELECT count(*) FROM archive_files`)
}

// TestDatabasePassIsRepeatableAfterACrash: the run was stored, but its deletion was lost. The next pass stores the same
// file again and deletes the run; an import restores it exactly.
func TestDatabasePassIsRepeatableAfterACrash(t *testing.T) {
	t.Parallel()
	for name, megabytes := range map[string]int{"in one row": 0, "in rows": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.enlarge(t, megabytes)
			d := f.database()
			check.NoError(t, d.Check(t.Context()))
			before, want := f.contents(t), f.file(t)
			crash := func(ctx context.Context, tx pgx.Tx) error { return errors.Join(errBroken, tx.Conn().Close(ctx)) }
			if _, err := f.retention(t, d, crash).Pass(t.Context()); !errors.Is(err, errBroken) {
				t.Fatalf("got %v", err)
			}
			f.wantStored(t, want)
			f.wantContents(t, before)
			done := check.Value(f.retention(t, d, dropNothing).Pass(t.Context()))(t)
			check.Equal(t, "removed runs", done.Runs, 1)
			f.wantStored(t, want)
			if left := f.contents(t); left["events"]+left["streams"] != "" {
				t.Errorf("rows are left: %.500s", left)
			}
			check.NoError(t, f.load(t.Context(), f.stored(t)))
			f.wantContents(t, before)
		})
	}
}

// TestInterruptedStoreLeavesThePreviousFile, and nothing else, wherever it fails.
func TestInterruptedStoreLeavesThePreviousFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$`)
	var previous []byte
	for _, megabytes := range []int{0, 2} {
		f.enlarge(t, megabytes)
		for _, at := range []string{`NEW.part = 0`, `NEW.part = 1`, `NEW.last`} {
			f.exec(t, `CREATE TRIGGER break BEFORE INSERT ON archive_files FOR EACH ROW WHEN (`+at+`) EXECUTE FUNCTION break()`)
			_, err := f.database().Store(t.Context(), project, f.run)
			f.exec(t, `DROP TRIGGER break ON archive_files`)
			if err == nil && (megabytes > 0 || at != `NEW.part = 1`) {
				t.Errorf("%d MB, %s: it was stored", megabytes, at)
			}
			if err == nil {
				previous = f.file(t)
			}
			f.wantStored(t, previous)
		}
		check.Value(f.database().Store(t.Context(), project, f.run))(t)
		previous = f.file(t)
		f.wantStored(t, previous)
	}
	f.exec(t, `DELETE FROM stream_chunks WHERE idx = 1`)
	if _, err := f.database().Store(t.Context(), project, f.run); err == nil {
		t.Error("a damaged run was stored")
	}
	f.wantStored(t, previous)
}

// writing begins to store the run.
func (f *fixture) writing(t *testing.T, file int64, data []byte) *rowWriter {
	t.Helper()
	w := &rowWriter{ctx: t.Context(), pool: f.pool, project: project}
	w.RunID, w.File = f.run, file
	check.Value(w.Write(data))(t)
	return w
}

// TestLateStoreDoesNotReplaceANewerFile: the run has grown, is locked, was stored by another process, or is deleted.
func TestLateStoreDoesNotReplaceANewerFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enlarge(t, 2)
	d := f.database()
	size := check.Value(d.Store(t.Context(), project, f.run))(t)
	old := f.file(t)
	late := func(why string, meanwhile func()) {
		t.Helper()
		w := f.writing(t, 1, old)
		meanwhile()
		if err := w.finish(size); !errors.Is(err, entities.ErrConflict) {
			t.Errorf("%s: got %v, want %v", why, err, entities.ErrConflict)
		}
		w.abort()
	}
	late("another process has stored it", func() { check.Value(d.Store(t.Context(), project, f.run))(t) })
	f.wantStored(t, old)
	late("a chunk was written", func() { f.enlarge(t, 1) })
	f.wantStored(t, old)
	size.LastSeq--
	late("an event was appended", func() {})
	tx := check.Value(f.pool.Begin(t.Context()))(t)
	check.Value(tx.Exec(t.Context(), `SELECT FROM runs FOR UPDATE`))(t)
	if _, err := d.Store(t.Context(), project, f.run); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("a locked run: got %v", err)
	}
	check.NoError(t, tx.Rollback(t.Context()))
	size = check.Value(d.Store(t.Context(), project, f.run))(t)
	whole := f.file(t)
	late("the run is deleted", func() { f.remove(t, d, 0) })
	f.wantStored(t, whole)
}

// TestRacingStores: each file that is read while several processes store a run that grows is whole. At the end there is
// one file, of the run as it was when it was deleted.
func TestRacingStores(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enlarge(t, 2)
	d := f.database()
	check.Value(d.Store(t.Context(), project, f.run))(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				if _, err := d.Store(t.Context(), project, f.run); err != nil && !errors.Is(err, entities.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for range 10 {
			if err := f.streams().Write(t.Context(), project, f.run, "late", [][]byte{{1}}); err != nil {
				t.Error(err)
			}
		}
	})
	all.Go(func() {
		for range 20 {
			file, err := d.Open(t.Context(), project, f.run)
			if err != nil {
				t.Error(err)
				return
			}
			data, err := io.ReadAll(file)
			if err != nil && !errors.Is(err, errReplaced) {
				t.Error(err)
			}
			if _, damaged := unpacked(data); err == nil && damaged != nil {
				t.Errorf("a file of %d bytes: %v", len(data), damaged)
			}
		}
	})
	all.Wait()
	want := f.file(t)
	var removed [4]int
	for i := range removed {
		all.Go(func() {
			done, err := f.retention(t, d, dropNothing).Pass(t.Context())
			if removed[i] = done.Runs; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := slices.Max(removed[:]); n == 0 { // each has found it locked by another one
		f.remove(t, d, 0)
	}
	f.wantStored(t, want)
}

// TestFilesOfAnySizeAreStored includes sizes at the boundary of a part.
func TestFilesOfAnySizeAreStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	size := check.Value(f.database().Store(t.Context(), project, f.run))(t)
	data := make([]byte, 2*rowSize+1)
	_, _ = rand.Read(data)
	for i, n := range []int{1, rowSize - 1, rowSize, rowSize + 1, 2 * rowSize, 2*rowSize + 1} {
		w := f.writing(t, int64(i), nil)
		for piece := range slices.Chunk(data[:n], 100_003) {
			check.Equal(t, "written bytes", check.Value(w.Write(piece))(t), len(piece))
		}
		check.NoError(t, w.finish(size))
		f.wantStored(t, data[:n])
	}
}

// TestForgottenFilesAreDeleted with the runs' rows, long ones bit by bit; and with a row that is deleted by hand.
func TestForgottenFilesAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enlarge(t, 3)
	d := f.database()
	f.remove(t, d, 0)
	forget := func(want int) {
		t.Helper()
		f.exec(t, `UPDATE archived_runs SET archived_at = now() - interval '2 h'`)
		n := check.Value(store.ForgetArchived(t.Context(), f.pool, time.Hour, 3))(t)
		check.Equal(t, "forgotten runs and parts", n, want)
	}
	forget(3)
	if f.stored(t) != nil {
		t.Error("a file without its first parts can be opened")
	}
	for _, want := range []int{1, 0} {
		forget(want)
		testdb.In(f.pool).Want(t, "runs and parts", 0,
			`SELECT (SELECT count(*) FROM archived_runs) + (SELECT count(*) FROM archive_files)`)
	}
	f = newFixture(t)
	f.remove(t, f.database(), time.Nanosecond) // by the same pass
	f.wantStored(t, nil)
	f = newFixture(t)
	f.remove(t, f.database(), time.Hour)
	f.exec(t, `DELETE FROM archived_runs`)
	f.wantStored(t, nil)
}

// TestShreddingDeletesTheFile of a run that was imported: its streams are there by other keys.
func TestShreddingDeletesTheFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check.Value(f.database().Store(t.Context(), project, f.run))(t)
	var b pgx.Batch
	store.DeleteCopies(&b, f.run, nil)
	check.NoError(t, f.pool.SendBatch(t.Context(), &b).Close())
	f.wantStored(t, nil)
}

// TestStoredFilesCount as what the project stores.
func TestStoredFilesCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enlarge(t, 2)
	file := f.file(t)
	f.remove(t, f.database(), 0)
	for of, want := range map[entities.Project]int64{project: int64(len(file)), "away": 0} {
		check.Equal(t, fmt.Sprintf("bytes of %s", of), check.Value(store.StoredBytes(t.Context(), f.pool, of))(t), want)
	}
}
