package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// startChild is the command that starts a child run.
type startChild struct {
	Type         string            `json:"type"`
	ID           string            `json:"id"`
	Workflow     string            `json:"workflow"`
	Input        json.RawMessage   `json:"input"`
	Deployment   string            `json:"deployment,omitempty"`
	Attributes   map[string]string `json:"attributes,omitempty"`
	Timeout      string            `json:"timeout,omitempty"`
	TimeoutGrace string            `json:"timeoutGrace,omitempty"`
	OnParentEnd  string            `json:"onParentEnd,omitempty"`
	At           string            `json:"at,omitempty"`
}

// ChildOption configures a child run.
type ChildOption func(*startChild)

// ChildID sets the ID of the child in the log of its parent. By default it is made from the place, as that of a step.
func ChildID(id string) ChildOption { return func(c *startChild) { c.ID = id } }

// ChildDeployment runs the child by another deployment than the parent's.
func ChildDeployment(id string) ChildOption { return func(c *startChild) { c.Deployment = id } }

// ChildAttribute sets an attribute of the child.
func ChildAttribute(key, value string) ChildOption {
	return func(c *startChild) {
		if c.Attributes == nil {
			c.Attributes = map[string]string{}
		}
		c.Attributes[key] = value
	}
}

// ChildTimeout limits the time of the child. When it is over, the child is asked to cancel, and forced after the grace; 0
// forces at once.
func ChildTimeout(d, grace time.Duration) ChildOption {
	return func(c *startChild) {
		c.Timeout = d.String()
		if grace > 0 {
			c.TimeoutGrace = grace.String()
		}
	}
}

// LeaveOnParentEnd lets the child go on when its parent ends. By default it is cancelled.
func LeaveOnParentEnd() ChildOption { return func(c *startChild) { c.OnParentEnd = "leave" } }

// Child is the future of a child run's output.
type Child[O any] struct {
	*Future[O]

	turn *turn
}

// Child starts the workflow as a child run. If it does not complete, the error is a [*ChildError].
func (d *Workflow[I, O]) Child(w *W, in I, options ...ChildOption) *Child[O] {
	if w.scope.err != nil {
		return &Child[O]{failed[O](w.scope.err), w.turn}
	}
	input, err := json.Marshal(in)
	if err != nil {
		return &Child[O]{failed[O](fmt.Errorf("encode the input of workflow %s: %w", d.name, err)), w.turn}
	}
	c := startChild{Type: "startChild", Workflow: d.name, Input: input, At: w.turn.at()}
	for _, set := range options {
		set(&c)
	}
	if c.TimeoutGrace != "" {
		w.turn.need("cancel")
	}
	if c.ID == "" {
		c.ID = w.co.Scope.ID(d.name)
	}
	op := w.ask(&engine.Operation{Kind: engine.KindChild, ID: c.ID, Name: d.name, Input: input, Command: c})
	return &Child[O]{resultOf[O](w.turn, op), w.turn}
}

// Cancel asks the child to cancel, so that it can compensate, and forces that after the grace. Unlike [Future.Cancel], the
// result is still the child's: wait for it to know how the child has ended.
func (c *Child[O]) Cancel(w *W, reason string, grace time.Duration) {
	w.co.Check()
	if c.op == nil || c.done() {
		return
	}
	c.turn.request(engine.KindCancelStep, c.op, "cancelStep", cancelCommand{
		"cancelStep", c.op.ID, oneLine(reason), max(grace, 0).String(),
	})
	c.op.Cancelled = true
	c.Future.done = c.op.Done
}

// ChildError is the error of a child run that did not complete.
type ChildError struct {
	// RunID is the ID of the child, and ID its ID in the log of its parent.
	RunID, ID string
	// Cancelled is set if the child was cancelled, and TimedOut if its time was over; otherwise it has failed.
	Cancelled, TimedOut bool

	failure failure
	server  bool
}

// Error implements error.
func (e *ChildError) Error() string { return fmt.Sprintf("child %s: %s", e.ID, e.failure.Error()) }

// Code is the code of the child's error; empty if it has none.
func (e *ChildError) Code() string { return e.failure.Code }

// Is reports whether the child was cancelled or timed out, if the target is [ErrCancelled] or [ErrTimeout].
func (e *ChildError) Is(target error) bool {
	return errors.Is(target, ErrCancelled) && e.Cancelled || errors.Is(target, ErrTimeout) && e.TimedOut
}

// Unwrap returns the error of the child itself, if it has failed with one.
func (e *ChildError) Unwrap() error {
	if e.server {
		return nil
	}
	return &e.failure
}

// childError returns the error of a child that did not complete.
func childError(t *turn, op *engine.Operation, e engine.Event) error {
	f := decodeFailure(e.Payload)
	err := &ChildError{RunID: t.engine.ChildOf(op), ID: op.ID, failure: f}
	switch {
	case e.Data.ErrorCode == "child_cancelled" || e.Data.ErrorCode == codeCancelled:
		err.Cancelled, err.server = true, true
	case f.Code == codeTimeout:
		err.TimedOut, err.server = true, true
	}
	return err
}
