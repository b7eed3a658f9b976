package testdb

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
)

// Pool is [New] with connections of a server to the database. See [Connect].
func Pool(t testing.TB, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return Connect(t, New(t), options...)
}

// Connect opens the connections of a server to a migrated database, and closes them when the test ends.
func Connect(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema, options...)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec executes a statement, which must succeed.
func Exec(t testing.TB, pool interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
