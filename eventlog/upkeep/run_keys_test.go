package upkeep

import (
	"context"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func (f *fixture) keyOf(t *testing.T, id entities.RunID, age time.Duration) {
	t.Helper()
	f.exec(t, `INSERT INTO run_keys (run_id, project, secret, created_at) VALUES ($1, $2, sha256(''), now() - $3::interval)`,
		id, home, age)
}

func (f *fixture) hasKey(t *testing.T, id entities.RunID) (has bool) {
	t.Helper()
	err := f.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM run_keys WHERE run_id = $1)`, id).Scan(&has)
	if err != nil {
		t.Fatal(err)
	}
	return has
}

// The key of a run goes with it, unless an archive has the run.
func TestKeysOutlastArchivedRuns(t *testing.T) {
	t.Parallel()
	for _, archived := range []bool{true, false} {
		f := newFixture(t)
		id := f.expired(t, 2*keep)
		f.keyOf(t, id, 2*keep)
		r := f.retention()
		if archived {
			r = f.retention(archiving(f.exporting))
		}
		wantPass(t, r, PassResult{Runs: 1})
		wantPass(t, r, PassResult{}) // sweeps, too
		if has := f.hasKey(t, id); has != archived {
			t.Errorf("archived: %t, has a key: %t", archived, has)
		}
	}
}

// A key whose run was never created goes after an hour.
func TestKeysOfNoRunAreSwept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	live := f.run(t)
	f.keyOf(t, live, 48*time.Hour)
	f.keyOf(t, "wrun_old", 61*time.Minute)
	f.keyOf(t, "wrun_new", 59*time.Minute)
	wantPass(t, f.retention(), PassResult{})
	for id, want := range map[entities.RunID]bool{live: true, "wrun_old": false, "wrun_new": true} {
		if has := f.hasKey(t, id); has != want {
			t.Errorf("%s has a key: %t, want %t", id, has, want)
		}
	}
}

// A key that becomes new while it is swept, because its run is to begin, stays.
func TestKeysThatBecomeNewAreNotSwept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.keyOf(t, "wrun_old", 61*time.Minute)
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after a failure
	if _, err := tx.Exec(t.Context(), `UPDATE run_keys SET created_at = now()`); err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() {
		_, err := f.retention().Pass(t.Context())
		swept <- err
	}()
	f.waitForLock(t, swept)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testdb.Receive(t, "the sweep", swept); err != nil || !f.hasKey(t, "wrun_old") {
		t.Errorf("it has a key: %t, %v", f.hasKey(t, "wrun_old"), err)
	}
}
