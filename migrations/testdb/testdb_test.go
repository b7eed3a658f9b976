package testdb

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations"
)

// connect opens a connection and closes it when the test ends.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// query returns the single value that a statement selects.
func query[T any](t *testing.T, dsn, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := connect(t, dsn).QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// hasSchema selects whether the database has our schema.
const hasSchema = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '" + migrations.DefaultSchema + "')"

func TestNewHasSchema(t *testing.T) {
	t.Parallel()
	dsn := New(t)
	if !query[bool](t, dsn, hasSchema) {
		t.Error("the schema is missing")
	}
	if err := migrations.Up(t.Context(), dsn, migrations.DefaultSchema); err != nil {
		t.Errorf("migrate again: %v", err)
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	if query[bool](t, Empty(t), hasSchema) {
		t.Error("the schema exists")
	}
}

func TestDatabasesAreIsolated(t *testing.T) {
	t.Parallel()
	one, two := New(t), New(t)
	if _, err := connect(t, one).Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
		t.Fatal(err)
	}
	if query[bool](t, two, "SELECT to_regclass('mine') IS NOT NULL") {
		t.Error("both databases have a table created in one")
	}
}

func TestConcurrentNew(t *testing.T) {
	t.Parallel()
	const many = 40
	names := make([]string, many)
	var calls sync.WaitGroup
	for i := range many {
		calls.Go(func() {
			conn, err := pgx.Connect(t.Context(), New(t))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			names[i] = conn.Config().Database
		})
	}
	calls.Wait()
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			t.Errorf("two tests got database %s", name)
		}
		seen[name] = true
	}
}

func TestDatabaseIsDroppedAfterTest(t *testing.T) {
	t.Parallel()
	other := New(t)
	for _, kind := range []func(testing.TB) string{New, Empty} {
		var name string
		t.Run("owner", func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), kind(t)) // left open: does not prevent the drop
			if err != nil {
				t.Fatal(err)
			}
			name = conn.Config().Database
		})
		if query[bool](t, other, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name) {
			t.Errorf("database %s still exists", name)
		}
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	tests := []struct{ dsn, want string }{
		{"postgres://u:p%40@h:1/old?sslmode=disable", "postgres://u:p%40@h:1/new?sslmode=disable"},
		{"postgresql://h", "postgresql://h/new"},
		{"host=h dbname=old sslmode=disable", "host=h dbname=old sslmode=disable dbname=new"},
	}
	for _, tt := range tests {
		got, err := withDatabase(tt.dsn, "new")
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", tt.dsn, got, err, tt.want)
			continue
		}
		config, err := pgx.ParseConfig(got)
		if err != nil || config.Database != "new" {
			t.Errorf("%s: pgx reads database %v (%v)", got, config, err)
		}
	}
}

func TestNumberIn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		number int32
		ours   bool
	}{
		{"stepwell_test_123_4", 123, true},
		{"stepwell_test_123_template", 123, true},
		{"stepwell_test_123", 0, false},
		{"stepwell_test_mine_1", 0, false},
		{"stepwell_test_99999999999_1", 0, false},
	}
	for _, tt := range tests {
		if number, ours := numberIn(tt.name); ours != tt.ours || ours && number != tt.number {
			t.Errorf("%s: got %d, %v, want %d, %v", tt.name, number, ours, tt.number, tt.ours)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	New(b) // open the server and create the template
	for b.Loop() {
		s, err := sharedServer()
		if err != nil {
			b.Fatal(err)
		}
		db, err := s.migrated(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.drop(b.Context(), db.name); err != nil {
			b.Fatal(fmt.Errorf("drop: %w", err))
		}
	}
}
