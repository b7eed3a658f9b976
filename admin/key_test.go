package admin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestRolesEqualTheCheckOfTheColumn compares [Roles] with the CHECK constraint of the column role.
func TestRolesEqualTheCheckOfTheColumn(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	var got []Role
	err := pool.QueryRow(t.Context(), `
		SELECT array_agg(m[1]) FROM pg_constraint, regexp_matches(pg_get_constraintdef(oid), '''([^'']*)''::text', 'g') AS m
		WHERE conname = 'api_keys_role_check' AND connamespace = $1::text::regnamespace`,
		migrations.DefaultSchema).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	want := Roles()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the CHECK's roles differ from Roles() (-want +got):\n%s", diff)
	}
}
