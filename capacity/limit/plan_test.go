package limit

import (
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestPermitsAreFoundByTheirHolders: a plan that was made while few waited must not read all that wait, or compare each
// of them with all holders, when many do.
func TestPermitsAreFoundByTheirHolders(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for sql, indexes := range map[string][]string{
		windowOf:       {"permits_pkey", "permits_rank_idx"},
		grantPermits:   {"permits_pkey"},
		waitingPermits: {"permits_pkey"},
		// each step of a skip from key to key
		awaitedPage: {"permits_waiting_idx"}, awaitingProjects: {"permits_waiting_idx"},
	} {
		plan := testdb.GenericPlan(t, conn.Conn(), sql)
		for _, index := range indexes {
			if !strings.Contains(plan, index) {
				t.Errorf("the plan does not use %s: %s\n%s", index, sql, plan)
			}
		}
	}
}
