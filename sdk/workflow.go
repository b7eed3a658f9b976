package stepwell

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// None is the input or output of what has none.
type None struct{}

// Workflow is the definition of a workflow with input I and output O. Those who start runs and those who execute them use
// the same definition.
type Workflow[I, O any] struct {
	name    string
	options workflowOptions
}

// DeclareWorkflow returns the definition of a workflow. [Workflow.Bind] gives it a function.
func DeclareWorkflow[I, O any](name string, options ...WorkflowOption) *Workflow[I, O] {
	d := &Workflow[I, O]{name: name}
	for _, set := range options {
		set(&d.options)
	}
	return d
}

// Name returns the name of the workflow.
func (d *Workflow[I, O]) Name() string { return d.name }

// Bind returns the workflow with its function, for [App.Register].
func (d *Workflow[I, O]) Bind(fn func(*W, I) (O, error)) Definition {
	return Definition{
		name: d.name, kind: "workflow", options: d.options,
		problems: roundTrips[I, O](d.name),
		workflow: func(w *W, input json.RawMessage) (json.RawMessage, error) {
			in, err := decode[I](input)
			if err != nil {
				return nil, Hold(fmt.Errorf("decode the input: %w", err))
			}
			out, err := fn(w, in)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(out)
			if err != nil {
				return nil, Hold(fmt.Errorf("encode the output: %w", err))
			}
			return data, nil
		},
	}
}

// Definition is a workflow or step with its function.
type Definition struct {
	name, kind string
	options    workflowOptions
	problems   []string
	workflow   func(*W, json.RawMessage) (json.RawMessage, error)
	step       *boundStep
}

// decode decodes JSON; nothing at all is the zero value.
func decode[T any](data json.RawMessage) (v T, err error) {
	if len(data) == 0 {
		return v, nil
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// W is the handle of a workflow's code: it asks for steps, time and payloads, and waits for them. It is valid in the
// function that gets it, and only in that function's goroutine. It is no [context.Context], because a workflow does no
// I/O.
type W struct {
	turn *turn
	co   *engine.Coroutine

	random *rand.Rand // of this scope; made when it is needed
	saga   *Saga      // the innermost one; nil if there is none
}

// turn is what the coroutines of one invocation share.
type turn struct {
	engine *engine.Engine
	info   RunInfo
	app    *App
	onEnd  []func(*W, error)

	features []string  // of the server
	attempt  int       // number of the call for the same events
	deadline time.Time // of the call
}

// newTurn returns the state of an execution.
func newTurn(e *engine.Engine, a *App, c call) *turn {
	return &turn{engine: e, app: a, info: infoOf(c), features: c.Server.Features}
}

func infoOf(c call) RunInfo {
	return RunInfo{c.Run.ID, c.Run.Workflow, c.Run.Deployment, c.Run.Key, c.Run.ParentID}
}

// offers reports whether the server has a feature.
func (t *turn) offers(feature string) bool { return slices.Contains(t.features, feature) }

// RunInfo describes a run.
type RunInfo struct {
	ID, Workflow, Deployment string
	// Key is the run's key, and ParentID its parent's ID; empty if it has none.
	Key, ParentID string
}

// Info describes the run.
func (w *W) Info() RunInfo { return w.turn.info }

// with returns the handle of another coroutine.
func (w *W) with(co *engine.Coroutine) *W { return &W{turn: w.turn, co: co, saga: w.saga} }

// ask asks for an operation.
func (w *W) ask(op *engine.Operation) *engine.Operation {
	op.Place = engine.Caller()
	w.turn.engine.Ask(w.co, op)
	return op
}
