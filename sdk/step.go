package stepwell

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Step is the definition of a step with input I and output O.
type Step[I, O any] struct {
	name    string
	options []StepOption
}

// DeclareStep returns the definition of a step. [Step.Bind] gives it a function; a step that another deployment executes
// needs none.
func DeclareStep[I, O any](name string, options ...StepOption) *Step[I, O] {
	return &Step[I, O]{name, options}
}

// Name returns the name of the step.
func (s *Step[I, O]) Name() string { return s.name }

// boundStep executes a step.
type boundStep struct {
	execute func(context.Context, json.RawMessage) (json.RawMessage, error)
}

// Bind returns the step with its function, for [App.Register]. The function's context ends with the attempt's time and
// with the run.
func (s *Step[I, O]) Bind(fn func(context.Context, I) (O, error)) Definition {
	return Definition{
		name: s.name, kind: "step",
		problems: roundTrips[I, O](s.name),
		step: &boundStep{func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, err := decode[I](input)
			if err != nil {
				return nil, Fail("undecodable", fmt.Sprintf("decode the input of step %s: %v", s.name, err))
			}
			out, err := fn(ctx, in)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(out)
			if err != nil {
				return nil, Fail("unencodable", fmt.Sprintf("encode the output of step %s: %v", s.name, err))
			}
			return data, nil
		}},
	}
}

// Run runs the step and waits for its output. If the step fails for good, the error is a [*StepError].
func (s *Step[I, O]) Run(w *W, in I, options ...StepOption) (O, error) {
	return s.Go(w, in, options...).Await(w)
}

// Go starts the step and returns its future.
func (s *Step[I, O]) Go(w *W, in I, options ...StepOption) *Future[O] {
	o := collect(s.options, options)
	input, err := json.Marshal(in)
	if err != nil {
		return failed[O](fmt.Errorf("encode the input of step %s: %w", s.name, err))
	}
	id := o.id
	if id == "" {
		id = w.co.Scope.ID(s.name)
	}
	op := w.ask(&engine.Operation{Kind: engine.KindStep, ID: id, Name: s.name, Input: input})
	op.Command = newRunStep(op, o)
	f := resultOf[O](op)
	if o.undo != nil {
		if w.saga == nil {
			panic(fmt.Sprintf("%s: step %s has an Undo, but the workflow has no Saga", op.Place, s.name))
		}
		o.undo(w, in, f)
	}
	return f
}

// runStep is the command that starts a step.
type runStep struct {
	Type           string          `json:"type"`
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Input          json.RawMessage `json:"input"`
	Deployment     string          `json:"deployment,omitempty"`
	Timeout        string          `json:"timeout,omitempty"`
	AttemptTimeout string          `json:"attemptTimeout,omitempty"`
	Retry          *retry          `json:"retry,omitempty"`
}

func newRunStep(op *engine.Operation, o stepOptions) runStep {
	c := runStep{Type: "runStep", ID: op.ID, Name: op.Name, Input: op.Input, Deployment: o.deployment}
	if o.timeout > 0 {
		c.Timeout = o.timeout.String()
	}
	if o.attemptTimeout > 0 {
		c.AttemptTimeout = o.attemptTimeout.String()
	}
	if o.retry != (retry{}) {
		c.Retry = &o.retry
	}
	return c
}

// resultOf returns the future of an operation that ends with step_completed or step_failed.
func resultOf[T any](op *engine.Operation) *Future[T] {
	return &Future[T]{
		done: func() bool { return len(op.Received) > 0 },
		get: func() (T, error) {
			e := op.Received[0]
			if e.Type == "step_completed" {
				v, err := decode[T](e.Payload)
				if err != nil {
					err = Fail("undecodable", fmt.Sprintf("decode the output of step %s: %v", op.ID, err))
				}
				return v, err
			}
			return *new(T), stepError(op, e)
		},
	}
}

// stepError returns the error of a step that failed.
func stepError(op *engine.Operation, e engine.Event) error {
	f, err := decode[failure](e.Payload)
	if err != nil {
		f.Message = string(e.Payload)
	}
	return &StepError{
		Step: op.Name, ID: op.ID, Code: f.Code, Message: f.Message, Details: f.Details,
		server: e.Data.Recorded == nil && isServerCode(e.Data.ErrorCode),
	}
}

// isServerCode reports whether the server sets the code by itself. Any other one in a result comes from the step.
func isServerCode(code string) bool { return code == "timeout" || code == "cancelled" }
