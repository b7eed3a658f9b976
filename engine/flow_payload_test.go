package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestOutputsOfChildrenThatCannotBeRead fail the step of a flow: its child is of an app that encrypts, or whose outputs
// are larger than flows read.
func TestOutputsOfChildrenThatCannotBeRead(t *testing.T) {
	t.Parallel()
	children := make(chan entities.RunID, 10)
	d := startServer(t, serve(t, func(c *functionCall) {
		children <- c.Run.ID
		c.reply(object{"type": "openHook", "id": "h"})
	}))
	document := `
flow: parent
deployment: dpl_test
steps:
  child: {flow: other, catch: [{codes: [flow.payload], to: caught}]}
  caught: {set: "${error.message}"}
`
	v, err := registry.New(d.pool, time.Now).Put(t.Context(), project, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		"encr 1234": `{"child":"the payload is encrypted, and flows have no key: send it in the clear"}`,
		`"` + strings.Repeat("x", flow.MaxPayload) + `"`: `{"child":"the payload has more than 16777216 bytes: hand on a reference instead"}`,
	} {
		id := d.startOrder(t, v.DeploymentID, `{}`, "")
		child := testdb.Receive(t, "the child", children)
		d.waitForEvent(t, child, "hook_created h")
		if _, err := d.log.Append(t.Context(), project, eventlog.Request{
			RunID: child, Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven, Payload: []byte(payload),
		}); err != nil {
			t.Fatal(err)
		}
		d.wantEnd(t, id, entities.RunCompleted, want)
		if step := d.ends(t, id)["child"]; step != "failed" {
			t.Errorf("the step is %s", step)
		}
	}
}
