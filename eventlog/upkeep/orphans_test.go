package upkeep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestOrphanStreamsAreRemovedAtTheirAge removes streams a week after they began, unless their run exists.
func TestOrphanStreamsAreRemovedAtTheirAge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	live := f.run(t)
	f.write(t, home, live, "of a live run")
	f.write(t, home, "wrun_hc_1", "old")
	f.write(t, stranger, live, "of another's run")
	f.write(t, home, "wrun_hc_2", "young")
	f.write(t, home, "wrun_hc_3", "old, but after a young one")
	f.exec(t, `UPDATE streams SET created_at = now() - CASE name WHEN 'young' THEN $1::interval ELSE $2 END`,
		orphanAge-time.Minute, orphanAge+time.Minute)
	r := f.retention(func(o *RetentionOptions) { o.Keep = 0 }) // orphans are removed anyway
	wantPass(t, r, PassResult{Streams: 2})
	wantPass(t, r, PassResult{})
	f.exec(t, `UPDATE streams SET created_at = now() - $1::interval`, orphanAge+time.Minute)
	wantPass(t, r, PassResult{Streams: 2})
	f.exec(t, `
		INSERT INTO streams (project, name, run_id, chunks, created_at)
		SELECT 'home', 'many ' || n, 'wrun_hc_4', 0, now() - interval '1 year' FROM generate_series(1, $1) n`, 2*orphanBatchSize+3)
	wantPass(t, r, PassResult{Streams: 2*orphanBatchSize + 3})
	names, err := f.streams().List(t.Context(), home, live)
	if diff := cmp.Diff([]entities.StreamName{"of a live run"}, names); err != nil || diff != "" {
		t.Errorf("the remaining rows differ (-want +got), error %v:\n%s", err, diff)
	}
	if text := f.contents(t)["stream_chunks"]; strings.Count(text, "\n") != 1 {
		t.Errorf("got chunks\n%s\nwant two", text)
	}
}

// TestLockedOrphansAreRemovedByTheNextPass also wants the orphans after them removed by the first pass.
func TestLockedOrphansAreRemovedByTheNextPass(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
		INSERT INTO streams (project, name, run_id, chunks, created_at)
		SELECT 'home', n, 'wrun_hc_1', 0, now() - interval '1 year' FROM generate_series(1, $1) n`, orphanBatchSize+5)
	r := f.retention()
	err := pg.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM streams WHERE name IN ('3', '7', $1) FOR UPDATE`, fmt.Sprint(orphanBatchSize+2))
		wantPass(t, r, PassResult{Streams: orphanBatchSize + 2})
		wantPass(t, r, PassResult{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPass(t, r, PassResult{Streams: 3})
}

func TestOrphansWithManyChunksTakeSeveralBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	live := f.run(t)
	f.exec(t, `
		INSERT INTO streams (project, name, run_id, chunks, created_at)
		SELECT 'home', n, CASE WHEN n % 2 = 0 THEN $1 ELSE 'wrun_hc_1' END, $2, now() - interval '1 year'
		FROM generate_series(1, 10) n`, live, maxBatchRows/2)
	at := int64(0)
	for _, want := range []store.Orphans{{More: true, Deleted: 2}, {More: true, Deleted: 2}, {Deleted: 1}} {
		got, err := store.DeleteOrphans(t.Context(), f.pool, at, orphanAge, orphanBatchSize, maxBatchRows)
		at, got.Next = got.Next, 0
		if err != nil || got != want {
			t.Errorf("got %+v, error %v; want %+v", got, err, want)
		}
	}
}
