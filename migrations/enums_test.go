package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
// column's type, with custom and with generic plans.
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
