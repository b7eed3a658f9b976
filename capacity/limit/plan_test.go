package limit

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestPermitsAreFoundByTheirHolders: a plan that was made while few waited must not read all that wait, or compare each
// of them with all holders, when many do.
func TestPermitsAreFoundByTheirHolders(t *testing.T) {
	t.Parallel()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	planOf := func(sql, types, values string) string {
		t.Helper()
		if _, err := conn.Exec(t.Context(), `PREPARE planned (`+types+`) AS `+sql); err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE planned (`+values+`)`)
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
	for _, tt := range []struct{ sql, types, values, index string }{
		{windowOf, "text, text[], text[], int, int, int, int", "'p', '{a}', '{k}', 500, 2000, 10000, 8", "permits_pkey"},
		{windowOf, "text, text[], text[], int, int, int, int", "'p', '{a}', '{k}', 500, 2000, 10000, 8", "permits_rank_idx"},
		{grantPermits, "text[], timestamptz", "'{r}', now()", "permits_pkey"},
		{waitingPermits, "text[], bool", "'{r}', false", "permits_pkey"},
	} {
		if plan := planOf(tt.sql, tt.types, tt.values); !strings.Contains(plan, tt.index) {
			t.Errorf("the plan does not use %s: %s\n%s", tt.index, tt.sql, plan)
		}
	}
}
