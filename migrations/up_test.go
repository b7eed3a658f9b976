package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// lines is a destination for log lines.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(bytes.TrimSpace(p))
	return len(p), nil
}

// openReader begins a transaction that has read events, and so keeps the table from being altered.
func openReader(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `SELECT FROM events`); err != nil {
		t.Fatal(err)
	}
	return tx
}

// alteringEvents is a migration that alters the table events, as a later version may have one.
const alteringEvents = "99999_altering_events.sql"

// altering is the migrator with that migration.
func altering(m migrations.Migrator) migrations.Migrator {
	return m.With(fstest.MapFS{alteringEvents: {Data: []byte("-- +goose Up\nALTER TABLE events ADD COLUMN more text;\n")}})
}

func TestMigrationThatWaitsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	reader := openReader(t, pool)
	logged, done := make(lines, 100), make(chan error, 1)
	m := altering(migrations.Migrator{
		Logger: slog.New(slog.NewTextHandler(logged, nil)), LockTimeout: 200 * time.Millisecond, Pause: 50 * time.Millisecond,
	})
	go func() { done <- m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema) }()

	var longest time.Duration
	named := false
	for attempts := 0; attempts < 3 || !named; { // others can read all the time
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := pool.Exec(ctx, `SELECT FROM events`); err != nil {
			t.Fatalf("a read during the migration: %v", err)
		}
		cancel()
		longest = max(longest, time.Since(start))
		select {
		case line := <-logged:
			attempts++
			if !strings.Contains(line, alteringEvents) {
				t.Errorf("got log line %s, want %s in it", line, alteringEvents)
			}
			named = strings.Contains(line, "table events is locked by process") && strings.Contains(line, "idle in transaction")
		case err := <-done:
			t.Fatalf("the migration ended with error %v while a reader had its table", err)
		default:
		}
	}
	t.Logf("reads took at most %s", longest)
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMigrationGivesUpWaiting(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	openReader(t, pool)
	m := altering(migrations.Migrator{
		LockTimeout: 400 * time.Millisecond, Pause: 50 * time.Millisecond, MaxWait: 2 * time.Second,
	})
	err := m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema)
	locked, ok := errors.AsType[*migrations.LockedError](err)
	if !ok || !strings.Contains(locked.Holder, "table events is locked by process") ||
		!strings.Contains(err.Error(), alteringEvents+" did not get its locks") {
		t.Errorf("got error %v, want a LockedError about events", err)
	}
	if diff := cmp.Diff(onceEach(t), versions(t, pool)); diff != "" {
		t.Errorf("applied migrations differ (-before +after):\n%s", diff)
	}
}

func TestMigrationWaitsForAnother(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	reader := openReader(t, pool)
	logged, done := make(lines, 100), make(chan error, 2)
	m := altering(migrations.Migrator{
		Logger: slog.New(slog.NewTextHandler(logged, nil)), LockTimeout: 100 * time.Millisecond,
	})
	for range 2 {
		go func() { done <- m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema) }()
	}
	for line := ""; !strings.Contains(line, "another process that migrates"); {
		select {
		case line = <-logged:
			if strings.Contains(line, "another process that migrates") &&
				!regexp.MustCompile(`holder="process \d+ of stepwell migrate \(lock\) at \S+, since \d{4}-`).MatchString(line) {
				t.Errorf("got log line %s, want the holder in it", line)
			}
		case err := <-done:
			t.Fatalf("a migration ended with error %v while a reader had its table", err)
		}
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestIndexesAreBuiltBesideTheSearchForHolders: CREATE INDEX CONCURRENTLY waits for the transactions that are reading,
// of which none may be that of the lock, or of a process that waits for it: they end only after the migration.
func TestIndexesAreBuiltBesideTheSearchForHolders(t *testing.T) {
	t.Parallel()
	const text = "-- +goose NO TRANSACTION\n-- +goose Up\nSET lock_timeout = 0;\n"
	build := strings.Repeat("CREATE INDEX CONCURRENTLY more_idx ON events (created_at);\nDROP INDEX CONCURRENTLY more_idx;\n", 20)
	m := migrations.Migrator{LockTimeout: 4 * time.Millisecond}.With(fstest.MapFS{
		"99999_index.sql": {Data: []byte(text + build + "RESET lock_timeout;\n")},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dsn, racers := testdb.New(t), sync.WaitGroup{}
	for range 8 {
		racers.Go(func() {
			if err := m.Up(ctx, dsn, migrations.DefaultSchema); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
}
