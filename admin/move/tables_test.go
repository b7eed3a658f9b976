package move

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// column reads texts.
func column(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql, args...)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEachTableIsKnown: a table of the schema is moved, or is known not to have rows of a project. Where a column has
// the project, it says whose a row is.
func TestEachTableIsKnown(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	known := slices.Clone(others)
	for _, of := range tables {
		known = append(known, of.name)
		names := column(t, pool, `
			SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped`, of.name)
		if !slices.Contains(names, of.keyed()) {
			t.Errorf("table %s has no column %s", of.name, of.keyed())
		}
		if slices.Contains(names, "project") && of.keyed() != "project" && of.name != "waits" {
			t.Errorf("table %s has a column project, and is moved by %s", of.name, of.keyed())
		}
		for replaced := range of.values {
			if !slices.Contains(names, replaced) {
				t.Errorf("table %s has no column %s", of.name, replaced)
			}
		}
	}
	slices.Sort(known)
	all := column(t, pool, `
		SELECT tablename::text FROM pg_tables
		WHERE schemaname = current_schema AND tablename !~ '^(river|goose)_' ORDER BY tablename COLLATE "C"`)
	if !slices.Equal(all, known) {
		t.Errorf("the schema has the tables %v, and known are %v", all, known)
	}
}

// TestNumbersOfOtherDatabasesAreReplaced: a column that a sequence fills has its numbers from the target.
func TestNumbersOfOtherDatabasesAreReplaced(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	for _, of := range tables {
		for _, identity := range column(t, pool, `
			SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass AND attidentity <> ''`, of.name) {
			if _, ok := of.values[identity]; !ok {
				t.Errorf("the numbers of %s.%s are copied", of.name, identity)
			}
		}
	}
}
