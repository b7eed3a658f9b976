package stepwell

import (
	"encoding/json"
	"fmt"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// startChild is the command that starts a child run.
type startChild struct {
	Type        string          `json:"type"`
	ID          string          `json:"id"`
	Workflow    string          `json:"workflow"`
	Input       json.RawMessage `json:"input"`
	Deployment  string          `json:"deployment,omitempty"`
	Timeout     string          `json:"timeout,omitempty"`
	OnParentEnd string          `json:"onParentEnd,omitempty"`
}

// Child starts the workflow as a child run and returns the future of its output. If the child fails or is cancelled, the
// error is a [*StepError] with the code child_failed or child_cancelled. When this run ends, the child is cancelled.
func (d *Workflow[I, O]) Child(w *W, in I, options ...StepOption) *Future[O] {
	o := collect(options)
	input, err := json.Marshal(in)
	if err != nil {
		return failed[O](fmt.Errorf("encode the input of workflow %s: %w", d.name, err))
	}
	c := startChild{Type: "startChild", ID: o.id, Workflow: d.name, Input: input, Deployment: o.deployment}
	if c.ID == "" {
		c.ID = w.co.Scope.ID(d.name)
	}
	if o.timeout > 0 {
		c.Timeout = o.timeout.String()
	}
	return resultOf[O](w.ask(&engine.Operation{Kind: engine.KindChild, ID: c.ID, Name: d.name, Input: input, Command: c}))
}
