package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// word is a type of strings, as the server's enums are.
type word string

// wordsWritten are the statements that write a word from a parameter, by the constraint on it.
var wordsWritten = map[string][]string{
	"events_type_check": {
		`INSERT INTO events (project, run_id, seq, type, spec_version, created_at, data)
		VALUES ('p', 'run', 2, %s, 3, now(), '{}')`,
		`UPDATE events SET type = %s`,
	},
	"runs_status_check": {
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ('twin', 'p', 'd', 'w', %s, 3, 1, now(), now())`,
		`UPDATE runs SET status = %s`,
	},
	"runs_driver_check": {
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, driver, spec_version, last_seq, created_at,
			updated_at)
		VALUES ('twin', 'p', 'd', 'w', 'running', %s, 3, 1, now(), now())`,
		`UPDATE runs SET driver = %s`,
	},
	"steps_status_check": {
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		VALUES ('run', 'twin', 's', %s, 1, 3, 3, now(), now())`,
		`UPDATE steps SET status = %s`,
	},
}

// TestWordsAreCheckedHoweverTheyCome: as parameters of a known type or of the column's, in statements that are prepared,
// and are executed often enough to be planned for all values. Servers of before the domains give them no type.
func TestWordsAreCheckedHoweverTheyCome(t *testing.T) {
	t.Parallel()
	good := map[string]word{
		"events_type_check": "step_created", "runs_status_check": "running", "runs_driver_check": "server",
		"steps_status_check": "pending",
	}
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	if _, err := pool.Exec(t.Context(), goodRows); err != nil {
		t.Fatal(err)
	}
	for constraint, statements := range wordsWritten {
		for _, statement := range statements {
			for _, parameter := range []string{"$1", "$1::text"} {
				sql := fmt.Sprintf(statement, parameter)
				t.Run(constraint+" "+sql, func(t *testing.T) {
					t.Parallel()
					const oftenEnough = 7 // Postgres plans five times for one value
					for range oftenEnough {
						if err := tried(t, pool, sql, good[constraint]); err != nil {
							t.Fatalf("%q: %v", good[constraint], err)
						}
					}
					for _, bad := range []word{"none", word(strings.ToUpper(string(good[constraint]))), good[constraint] + " "} {
						var pg *pgconn.PgError
						if err := tried(t, pool, sql, bad); !errors.As(err, &pg) || pg.ConstraintName != constraint {
							t.Errorf("%q: got error %v, want constraint %s", bad, err, constraint)
						}
					}
					const notNull = "23502"
					var pg *pgconn.PgError
					if err := tried(t, pool, sql, (*word)(nil)); !errors.As(err, &pg) || pg.Code != notNull {
						t.Errorf("NULL: got error %v, want %s", err, notNull)
					}
				})
			}
		}
	}
}

// tried executes a statement and takes it back.
func tried(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) error {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), sql, args...)
	return err
}

// TestEnumsComeToTablesWithRows: the rows stay as they are and where they are, and there is a way back.
func TestEnumsComeToTablesWithRows(t *testing.T) {
	t.Parallel()
	const before, with = 15, 16
	pool, provider := migratedTo(t, before)
	if _, err := pool.Exec(t.Context(), goodRows+`;
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at,
			updated_at, completed_at)
		VALUES ('ended', 'p', 'd', 'w', 'failed', 3, 2, 2, now(), now(), now())`); err != nil {
		t.Fatal(err)
	}
	// The files of the tables, and of the indexes of all their rows: that they are the same says that nothing was copied.
	files := `
		SELECT string_agg(c.relname || ' ' || c.relfilenode, ', ' ORDER BY c.relname)
		FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i') AND i.indpred IS NULL
			AND c.relname ~ '^(events|runs|steps)'`
	rows := `
		SELECT concat_ws(' ', (SELECT string_agg(r::text, ',' ORDER BY id) FROM runs r),
			(SELECT string_agg(e::text, ',') FROM events e), (SELECT string_agg(s::text, ',') FROM steps s))`
	wantFiles, wantRows := queryOne[string](t, pool, files), queryOne[string](t, pool, rows)
	wantConstraints := constraints(t, pool)
	for range 2 {
		if _, err := provider.UpTo(t.Context(), with); err != nil {
			t.Fatal(err)
		}
		pool.Reset() // what is prepared has the columns' old types
		if diff := cmp.Diff(wantFiles, queryOne[string](t, pool, files)); diff != "" {
			t.Errorf("files differ (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(wantRows, queryOne[string](t, pool, rows)); diff != "" {
			t.Errorf("rows differ (-before +after):\n%s", diff)
		}
		for constraint, statements := range wordsWritten {
			var pg *pgconn.PgError
			err := tried(t, pool, fmt.Sprintf(statements[0], "$1"), "none")
			if !errors.As(err, &pg) || pg.ConstraintName != constraint {
				t.Errorf("got error %v, want constraint %s", err, constraint)
			}
		}
		if n := queryOne[int](t, pool, `
			SELECT count(*) FROM pg_stats WHERE schemaname = current_schema()
				AND (tablename, attname) IN (('events', 'type'), ('runs', 'status'), ('runs', 'driver'), ('steps', 'status'))`); n != 4 {
			t.Errorf("%d of 4 columns have statistics", n)
		}
		if _, err := provider.DownTo(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		pool.Reset()
		if diff := cmp.Diff(wantConstraints, constraints(t, pool)); diff != "" {
			t.Errorf("constraints differ (-before +after the way back):\n%s", diff)
		}
	}
}

// constraints are what the schema's tables and domains refuse, and the columns' types.
func constraints(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT concat_ws(' ', conrelid::regclass, contypid::regtype, conname, convalidated, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
		UNION ALL
		SELECT concat_ws(' ', attrelid::regclass, attname, atttypid::regtype, attcollation::regcollation, attnotnull,
			pg_get_expr(adbin, adrelid))
		FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		WHERE attnum > 0 AND attrelid::regclass::text IN ('events', 'runs', 'steps')
		ORDER BY 1`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEmptyTablesGetNoStatistics: the planner would believe that they stay empty.
func TestEmptyTablesGetNoStatistics(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	for _, table := range []string{"events", "runs", "steps"} {
		if n := queryOne[int](t, pool, `SELECT reltuples::int FROM pg_class WHERE oid = $1::regclass`, table); n != -1 {
			t.Errorf("%s counts as a table of %d rows, want that nobody knows", table, n)
		}
	}
}
