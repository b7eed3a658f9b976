package e2e

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestAServerBehindAPoolerIsReplaced kills the server that calls a function. Another one takes over, with sessions past
// the pooler and without.
func TestAServerBehindAPoolerIsReplaced(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, way := range []string{harness.PoolerAndDirect, harness.PoolerOnly} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			env, err := harness.BehindPooler(dsn, way)
			if err != nil {
				t.Fatal(err)
			}
			first, second := newReplica(t, dsn, env...), newReplica(t, dsn, env...)
			f := newFunction(t, first, examples[0])
			order := teapot("killed")
			order["seconds"] = 2
			id := f.order(t, first, order)
			crashPoints[0].reach(t, first, f)
			first.Kill()
			second.decide(t, "killed", true)
			second.wantOutput(t, id, shipped(id))
			second.wantOnce(t, id)
			second.verify(t)
		})
	}
}
