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

// enum is a string type, as the server's enums are.
type enum string

// enumWrites are statements that write an enum from a parameter, by the constraint on it.
var enumWrites = map[string][]string{
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

// TestEnumsAreCheckedInEveryPlan checks that domains reject invalid values in parameters of type text and of the
// column's type, with custom and with generic plans. Servers older than the domains send parameters without a type.
func TestEnumsAreCheckedInEveryPlan(t *testing.T) {
	t.Parallel()
	valid := map[string]enum{
		"events_type_check": "step_created", "runs_status_check": "running", "runs_driver_check": "server",
		"steps_status_check": "pending",
	}
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	if _, err := pool.Exec(t.Context(), validRows); err != nil {
		t.Fatal(err)
	}
	for constraint, statements := range enumWrites {
		for _, statement := range statements {
			for _, parameter := range []string{"$1", "$1::text"} {
				sql := fmt.Sprintf(statement, parameter)
				t.Run(constraint+" "+sql, func(t *testing.T) {
					t.Parallel()
					good := valid[constraint]
					const executions = 7 // Postgres makes five custom plans before a generic one
					for range executions {
						if err := execAndRollBack(t, pool, sql, good); err != nil {
							t.Fatalf("%q: %v", good, err)
						}
					}
					for _, bad := range []enum{"none", enum(strings.ToUpper(string(good))), good + " "} {
						var pg *pgconn.PgError
						if err := execAndRollBack(t, pool, sql, bad); !errors.As(err, &pg) || pg.ConstraintName != constraint {
							t.Errorf("%q: got error %v, want constraint %s", bad, err, constraint)
						}
					}
					const notNull = "23502"
					var pg *pgconn.PgError
					if err := execAndRollBack(t, pool, sql, (*enum)(nil)); !errors.As(err, &pg) || pg.Code != notNull {
						t.Errorf("NULL: got error %v, want %s", err, notNull)
					}
				})
			}
		}
	}
}

// execAndRollBack executes a statement and rolls it back.
func execAndRollBack(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) error {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), sql, args...)
	return err
}

// TestEnumMigrationDoesNotRewriteTables checks that the migration to domains changes no row, copies no table, and can
// be reverted.
func TestEnumMigrationDoesNotRewriteTables(t *testing.T) {
	t.Parallel()
	const before, with = 15, 16
	pool, provider := migratedTo(t, before)
	if _, err := pool.Exec(t.Context(), validRows+`;
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, created_at,
			updated_at, completed_at)
		VALUES ('ended', 'p', 'd', 'w', 'failed', 3, 2, 2, now(), now(), now())`); err != nil {
		t.Fatal(err)
	}
	// The files of the tables and of their indexes other than partial ones: if they stay the same, nothing was copied.
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
		pool.Reset() // prepared statements have the columns' old types
		if diff := cmp.Diff(wantFiles, queryOne[string](t, pool, files)); diff != "" {
			t.Errorf("files differ (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(wantRows, queryOne[string](t, pool, rows)); diff != "" {
			t.Errorf("rows differ (-before +after):\n%s", diff)
		}
		for constraint, statements := range enumWrites {
			var pg *pgconn.PgError
			err := execAndRollBack(t, pool, fmt.Sprintf(statements[0], "$1"), "none")
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
			t.Errorf("constraints differ (-before +after the revert):\n%s", diff)
		}
	}
}

// constraints returns the constraints of the schema's tables and domains, and the columns' types.
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

// TestEmptyTablesGetNoStatistics checks that the planner does not assume that new tables stay empty.
func TestEmptyTablesGetNoStatistics(t *testing.T) {
	t.Parallel()
	pool := openPool(t, testdb.New(t), migrations.DefaultSchema)
	for _, table := range []string{"events", "runs", "steps"} {
		if n := queryOne[int](t, pool, `SELECT reltuples::int FROM pg_class WHERE oid = $1::regclass`, table); n != -1 {
			t.Errorf("%s has %d rows by its statistics, want no statistics", table, n)
		}
	}
}
