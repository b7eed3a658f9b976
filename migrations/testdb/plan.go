package testdb

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// GenericPlan returns the plan of a statement that Postgres makes without knowing the arguments, and keeps for all of
// them. The session's statements have generic plans from then on.
func GenericPlan(t testing.TB, conn *pgx.Conn, sql string) string {
	t.Helper()
	return plan(t, conn, "force_generic_plan", sql, `NULL`)
}

// CustomPlan returns the plan of a statement that Postgres makes when it knows the arguments, which are all 'x'. The
// session's statements have custom plans from then on.
func CustomPlan(t testing.TB, conn *pgx.Conn, sql string) string {
	t.Helper()
	return plan(t, conn, "force_custom_plan", sql, `'x'`)
}

// plan returns a plan of a statement whose arguments are all the same.
func plan(t testing.TB, conn *pgx.Conn, mode, sql, argument string) string {
	t.Helper()
	for _, sql := range []string{`SET plan_cache_mode = ` + mode, `PREPARE planned AS ` + sql} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var arguments int
	err := conn.QueryRow(t.Context(),
		`SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'`).Scan(&arguments)
	if err != nil {
		t.Fatal(err)
	}
	execute := `EXPLAIN EXECUTE planned`
	if arguments > 0 {
		execute += ` (` + argument + strings.Repeat(`, `+argument, arguments-1) + `)`
	}
	rows, err := conn.Query(t.Context(), execute)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `DEALLOCATE planned`); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Blocks returns the number of blocks that a statement touches, whose changes are rolled back.
func Blocks(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	explain := `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ` + sql
	if err := tx.QueryRow(t.Context(), explain, args...).Scan(&explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read
}
