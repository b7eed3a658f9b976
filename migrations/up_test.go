package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
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

// alteringEvents is the migration that alters the table events, and beforeIt the one before.
const beforeIt, alteringEvents = 15, "00016_enums.sql"

func TestMigrationThatWaitsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	pool, _ := migratedTo(t, beforeIt)
	reader := openReader(t, pool)
	logged, done := make(lines, 100), make(chan error, 1)
	m := migrations.Migrator{
		Logger: slog.New(slog.NewTextHandler(logged, nil)), LockTimeout: 200 * time.Millisecond, Pause: 50 * time.Millisecond,
	}
	go func() { done <- m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema) }()

	var longest time.Duration
	named := false
	for attempts := 0; attempts < 3 || !named; { // others can read all the time
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
	pool, provider := migratedTo(t, beforeIt)
	openReader(t, pool)
	m := migrations.Migrator{
		LockTimeout: 400 * time.Millisecond, Pause: 50 * time.Millisecond, MaxWait: 2 * time.Second,
	}
	err := m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema)
	locked, ok := errors.AsType[*migrations.LockedError](err)
	if !ok || !strings.Contains(locked.Holder, "table events is locked by process") ||
		!strings.Contains(err.Error(), alteringEvents+" did not get its locks") {
		t.Errorf("got error %v, want a LockedError about events", err)
	}
	if version, err := provider.GetDBVersion(t.Context()); err != nil || version != beforeIt {
		t.Errorf("got version %d, %v; want %d, as before", version, err, beforeIt)
	}
}

func TestMigrationWaitsForAnother(t *testing.T) {
	t.Parallel()
	pool, _ := migratedTo(t, beforeIt)
	reader := openReader(t, pool)
	logged, done := make(lines, 100), make(chan error, 2)
	m := migrations.Migrator{Logger: slog.New(slog.NewTextHandler(logged, nil)), LockTimeout: 100 * time.Millisecond}
	for range 2 {
		go func() { done <- m.Up(t.Context(), pool.Config().ConnString(), migrations.DefaultSchema) }()
	}
	for line := ""; !strings.Contains(line, "another process that migrates"); {
		select {
		case line = <-logged:
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
