package testdb

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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
