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
	for _, sql := range []string{`SET plan_cache_mode = force_generic_plan`, `PREPARE planned AS ` + sql} {
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
		execute += ` (NULL` + strings.Repeat(`, NULL`, arguments-1) + `)`
	}
	rows, err := conn.Query(t.Context(), execute)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `DEALLOCATE planned`); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}
