package upkeep

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/pg"
)

// limit sets the limits of project home.
func (f *fixture) limit(t *testing.T, l admin.Limits) {
	t.Helper()
	projects := access.NewProjects(f.pool, f.clock.now)
	if _, err := projects.Put(t.Context(), home, func(admin.Limits) admin.Limits { return l }); err != nil {
		t.Fatal(err)
	}
}

// project reads project home as it is at a time.
func (f *fixture) project(t *testing.T, at time.Time) admin.ListedProject {
	t.Helper()
	p, err := admin.ProjectByName(t.Context(), pg.NewPool(f.pool), home, at)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStorageIsMeasuredWhereItIsLimited checks what counts, and that no measurement is repeated before it is due.
func TestStorageIsMeasuredWhereItIsLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pass := func(want int64) {
		t.Helper()
		wantPass(t, f.retention(), PassResult{})
		if p := f.project(t, day); p.StoredBytes == nil || *p.StoredBytes != want || p.StoredAt == nil {
			t.Errorf("got %+v, want %d bytes", p, want)
		}
	}
	f.limit(t, admin.Limits{})
	wantPass(t, f.retention(), PassResult{})
	if p := f.project(t, day); p.StoredBytes != nil {
		t.Error("a project without a limit was measured")
	}
	f.limit(t, admin.Limits{StorageBytes: ptr(int64(1))})
	pass(0)
	r, other := runCreated(newRunID()), runCreated(newRunID())
	r.Extra = []byte("extra")
	if _, err := f.Append(t.Context(), home, r); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Append(t.Context(), stranger, other); err != nil {
		t.Fatal(err)
	}
	f.write(t, home, r.RunID, "strm") // two chunks of a byte
	f.write(t, stranger, other.RunID, "strm")
	f.write(t, home, newRunID(), "of a run that does not exist")
	f.exec(t, `UPDATE streams SET created_at = now()`) // so that the pass does not remove it
	f.exec(t, `
		INSERT INTO collections (run_id, project, workflow, kind, key, quiet, max_wait, keep, size, max_bytes, deployment,
			data, timeout, input, count, bytes, first_at, last_at, due_at)
		SELECT 'wrun_' || p, p, 'w', 'batch', '', '1 s', '1 s', 'all', 2, 100, '', '{}', '0', '', 1, length('[1]'),
			now(), now(), now()
		FROM unnest(ARRAY['home', 'stranger']) AS p`)
	pass(0) // the next measurement is not due yet
	f.exec(t, `UPDATE projects SET measure_after = now() WHERE name = 'home'`)
	pass(int64(len("input") + len("extra") + 2*len("ab") + len("[1]")))
	f.limit(t, admin.Limits{})
	f.limit(t, admin.Limits{StorageBytes: ptr(int64(1))})
	if p := f.project(t, day); p.StoredBytes != nil {
		t.Error("an old measurement is used for a new limit")
	}
}

// TestMeasurementIsTakenOnce lets many processes race for one (I4).
func TestMeasurementIsTakenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(t, admin.Limits{StorageBytes: ptr(int64(1))})
	taken := make(chan bool, racers)
	for range racers {
		go func() {
			m, err := admin.TakeMeasurement(t.Context(), pg.NewPool(f.pool))
			if err != nil {
				t.Error(err)
			}
			taken <- m != nil
		}()
	}
	n := 0
	for range racers {
		if <-taken {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d processes measure, want 1", n)
	}
}

// TestDeletedRunsStillCountAsStarts checks that a short retention does not raise the limit of daily starts.
func TestDeletedRunsStillCountAsStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(t, admin.Limits{DailyStarts: ptr(int64(10))})
	rows, err := f.pool.Query(t.Context(), `SELECT now()`)
	if err != nil {
		t.Fatal(err)
	}
	now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	if err != nil {
		t.Fatal(err)
	}
	for _, created := range []string{"now()", "now()", "now() - interval '1 day'"} {
		id := f.expired(t, 2*keep)
		f.exec(t, `UPDATE runs SET created_at = `+created+` WHERE id = $1`, id)
	}
	f.ended(t) // long ago, by the test's clock
	want := func(n int64, at time.Time) {
		t.Helper()
		if p := f.project(t, at); p.StartsToday == nil || *p.StartsToday != n {
			t.Errorf("got %+v, want %d starts", p.StartsToday, n)
		}
	}
	want(2, now)
	if got, err := f.retention().Pass(t.Context()); err != nil || got.Runs < 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	want(2, now)
	want(0, now.Add(24*time.Hour))
}
