package remote

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// TestEventLine: the steps of the Workflow SDK are shown as their authors named them, and other fields as they are.
func TestEventLine(t *testing.T) {
	t.Parallel()
	e := api.Event{
		Seq: 3, Type: "step_created", CorrelationID: "step_01JD5A8R8D0000000000000000",
		CreatedAt: api.Time{Time: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)},
		Data: map[string]json.RawMessage{
			"stepName": json.RawMessage(`"step//./workflows/order//chargeCard"`), "via": json.RawMessage(`"step//x//y"`),
			"step": json.RawMessage(`{"a":1}`),
		},
	}
	const want = "     3  2026-11-21T03:00:00.000Z  step_created    step_01JD5A8R8D0000000000000000  stepName=chargeCard via=step//x//y\n"
	if got := eventLine(e); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
