package migrations_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// tables are Stepwell's own tables.
var tables = []string{
	"api_keys", "archive_files", "archived_attributes", "archived_runs", "arrivals", "arrived_epochs", "arriving", "audit", "blobs", "catalogs", "collected", "collections", "data_keys", "departures", "deployments", "events", "feed_epochs", "flow_aliases", "flow_versions", "hooks", "leaving", "leaving_changes", "limit_clocks",
	"limits", "message_keys", "messages", "pauses", "permits", "policies", "processes", "projects",
	"retention", "run_attributes", "run_keys", "run_store", "run_wakes", "runs", "schedule_ticks", "schedules", "secrets", "server_keys", "session_codes",
	"session_keys", "sessions", "signals", "signing_keys", "stats", "stats_progress", "step_results", "steps", "stream_chunks",
	"stream_writers", "streams", "sweeper", "trigger_events", "triggers", "waits",
}

func openPool(t *testing.T, dsn, schema string) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func up(t *testing.T, dsn, schema string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := migrations.Up(ctx, dsn, schema); err != nil {
		t.Fatal(err)
	}
}

// tablesIn returns the tables of a schema, except those of River and goose.
func tablesIn(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT tablename::text FROM pg_tables
		WHERE schemaname = $1 AND tablename !~ '^(river|goose)_'
		ORDER BY tablename`, schema)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func queryOne[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// onceEach returns the result of versions if each migration in the folder has been applied once.
func onceEach(t *testing.T) map[int64]int {
	t.Helper()
	files, err := os.ReadDir("sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("read the folder of migrations: %d files, error %v", len(files), err)
	}
	want := map[int64]int{}
	for _, file := range files {
		number, _, _ := strings.Cut(file.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[version] = 1
	}
	return want
}

// versions returns how many times each of our migrations has been applied.
func versions(t *testing.T, pool *pgxpool.Pool) map[int64]int {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `SELECT version_id, count(*) FROM goose_db_version WHERE version_id > 0 GROUP BY 1`)
	applied := map[int64]int{}
	var version int64
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&version, &n}, func() error {
		applied[version] = n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return applied
}

func TestUpCreatesAllTables(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	up(t, dsn, migrations.DefaultSchema)
	pool := openPool(t, dsn, migrations.DefaultSchema)
	if diff := cmp.Diff(tables, tablesIn(t, pool, migrations.DefaultSchema)); diff != "" {
		t.Errorf("tables differ (-want +got):\n%s", diff)
	}
	if n := queryOne[int](t, pool, `SELECT count(*) FROM river_job`); n != 0 {
		t.Errorf("River has %d jobs, want none", n)
	}
	if names := tablesIn(t, pool, "public"); len(names) != 0 {
		t.Errorf("public has tables: %v", names)
	}
}

func TestUpTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	up(t, dsn, migrations.DefaultSchema)
	pool := openPool(t, dsn, migrations.DefaultSchema)
	first := versions(t, pool)
	up(t, dsn, migrations.DefaultSchema)
	if diff := cmp.Diff(first, versions(t, pool)); diff != "" {
		t.Errorf("applied migrations differ (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(onceEach(t), first); diff != "" {
		t.Errorf("applied migrations differ (-want +got):\n%s", diff)
	}
}

func TestConcurrentUp(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	const servers = 4
	errs := make(chan error, servers)
	for range servers {
		go func() { errs <- migrations.Up(t.Context(), dsn, migrations.DefaultSchema) }()
	}
	for range servers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	pool := openPool(t, dsn, migrations.DefaultSchema)
	if diff := cmp.Diff(onceEach(t), versions(t, pool)); diff != "" {
		t.Errorf("applied migrations differ (-want +got):\n%s", diff)
	}
}

func TestUpWithPoolOfOneConnection(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	query.Set("pool_max_conns", "1")
	address.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := migrations.Up(ctx, address.String(), migrations.DefaultSchema); err != nil {
		t.Error(err)
	}
}

func TestOtherSchemaNames(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	longest := strings.Repeat("s", 48)
	for _, schema := range []string{"acme", "_x1", longest, "user"} { // user is a key word
		up(t, dsn, schema)
		pool := openPool(t, dsn, schema)
		if diff := cmp.Diff(tables, tablesIn(t, pool, schema)); diff != "" {
			t.Errorf("tables of %s differ (-want +got):\n%s", schema, diff)
		}
		if got := queryOne[string](t, pool, `SELECT 'runs'::regclass::oid::regclass::text`); got != "runs" {
			t.Errorf("in schema %s, runs resolves to %s", schema, got)
		}
	}
	t.Run("are separate", func(t *testing.T) {
		pool := openPool(t, dsn, "acme")
		if _, err := pool.Exec(t.Context(), `
			INSERT INTO deployments (project, id, url) VALUES ('default', 'dpl_1', 'http://localhost')`); err != nil {
			t.Fatal(err)
		}
		if n := queryOne[int](t, openPool(t, dsn, "_x1"), `SELECT count(*) FROM deployments`); n != 0 {
			t.Errorf("another schema has %d deployments", n)
		}
	})
}

func TestInvalidSchemaNamesAreRejected(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{
		"empty": "", "upper case": "Stepwell", "a digit first": "1a", "a dash": "a-b", "a space": "a b", "a dot": "a.b",
		"a quote": `a"b`, "a statement": "a; DROP TABLE runs", "a new line": "a\n", "a NUL": "a\x00",
		"49 letters": strings.Repeat("s", 49), "a letter with an accent": "ä",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// No server listens on port 1, so an accepted name leads to another error.
			err := migrations.Up(t.Context(), "postgres://127.0.0.1:1/none", schema)
			if err == nil || !strings.Contains(err.Error(), "schema name") {
				t.Errorf("got error %v, want one about the schema name", err)
			}
		})
	}
}

func TestUpReturnsErrors(t *testing.T) {
	t.Parallel()
	t.Run("invalid address", func(t *testing.T) {
		t.Parallel()
		if err := migrations.Up(t.Context(), "postgres://%", migrations.DefaultSchema); err == nil {
			t.Error("got no error")
		}
	})
	t.Run("cancelled context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := migrations.Up(ctx, testdb.Empty(t), migrations.DefaultSchema); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want context.Canceled", err)
		}
	})
}

func TestPoolReturnsTimesInUTC(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	got := queryOne[time.Time](t, pool, `SELECT '2026-03-01 12:00:00.123+09'::timestamptz`)
	if want := time.Date(2026, 3, 1, 3, 0, 0, 123e6, time.UTC); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPoolSizeComesFromAddress(t *testing.T) {
	t.Parallel()
	for suffix, want := range map[string]int32{"": 20, "?pool_max_conns=7": 7} {
		pool := openPool(t, "postgres://127.0.0.1:1/none"+suffix, migrations.DefaultSchema)
		if got := pool.Config().MaxConns; got != want {
			t.Errorf("%q: got %d connections, want %d", suffix, got, want)
		}
	}
}
