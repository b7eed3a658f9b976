package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestStepsOfARunAreFoundOneByOne: a plan that was made while there were no steps must not read all steps of a run.
func TestStepsOfARunAreFoundOneByOne(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	if _, err := conn.Exec(t.Context(), `VACUUM ANALYZE steps`); err != nil {
		t.Fatal(err)
	}
	var b pgx.Batch
	LoadSteps(&b, "run", []entities.StepID{"a", "b"}, nil)
	UpdateSteps(pg.Batch{Batch: &b}, []entities.Step{{ID: "a"}, {ID: "b"}})
	for _, q := range b.QueuedQueries {
		plan := testdb.GenericPlan(t, conn.Conn(), q.SQL)
		if !strings.Contains(plan, "Index Cond: ((run_id = $1) AND (id >= n") || strings.Count(plan, "Scan using") != 1 {
			t.Errorf("steps are not found by their IDs: %s\n%s", q.SQL, plan)
		}
	}
}
