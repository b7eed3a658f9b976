package engine

import (
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestStartsOfFlowsHaveKeys: while a run has the key, a start has that run as its output, and a child fails.
func TestStartsOfFlowsHaveKeys(t *testing.T) {
	t.Parallel()
	d := startFlows(t)
	putFlow(t, d, `{flow: held, steps: {h: {hook: {}}}}`)
	putFlow(t, d, `
flow: starts
steps:
  one: {start: held, key: "order ${input.id}"}
  two: {needs: one, start: held, key: "order ${input.id}"}
  child: {needs: two, flow: held, key: "order ${input.id}", catch: [{codes: [key_taken]}]}
  free: {needs: child, join: always, start: held, key: "${input.?none}"}
output: ["${steps.one.output == steps.two.output}", "${steps.child.error.details.runId == steps.one.output.runId}",
  "${steps.free.output == steps.one.output}"]
`)
	d.wantEnd(t, d.startOrder(t, "starts@1", `{"id":7}`, ""), entities.RunCompleted, `[true,true,false]`)
	d.Want(t, "runs have had the key", 1, `SELECT count(*) FROM runs WHERE workflow_name = 'held' AND unique_key = 'order 7'`)
}
