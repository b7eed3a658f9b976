package stepwell

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
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
	fn      func(*W, I) (O, error) // of NewWorkflow; nil otherwise
}

// WorkflowOption configures a workflow where it is declared.
type WorkflowOption func(*workflowOptions)

type workflowOptions struct {
	batch, failRuns bool
	// inboxes are opened with each run.
	inboxes []string
}

// WithInbox declares that runs of the workflow have an inbox, which is opened with them.
func WithInbox(inbox interface{ inboxName() string }) WorkflowOption {
	return func(o *workflowOptions) { o.inboxes = append(o.inboxes, inbox.inboxName()) }
}

// DeclareWorkflow returns the definition of a workflow. [Workflow.Bind] gives it a function.
func DeclareWorkflow[I, O any](name string, options ...WorkflowOption) *Workflow[I, O] {
	d := &Workflow[I, O]{name: name}
	for _, set := range options {
		set(&d.options)
	}
	return d
}

// NewWorkflow returns the definition of a workflow with its function, for small programs. A function that mentions the
// variable of its own definition needs [DeclareWorkflow].
func NewWorkflow[I, O any](name string, fn func(*W, I) (O, error), options ...WorkflowOption) *Workflow[I, O] {
	d := DeclareWorkflow[I, O](name, options...)
	d.fn = fn
	return d
}

// Definition returns a workflow of [NewWorkflow] for [App.Register].
func (d *Workflow[I, O]) Definition() Definition { return d.Bind(d.fn) }

// Inboxes returns the names of the inboxes that runs of the workflow have.
func (d *Workflow[I, O]) Inboxes() []string { return slices.Clone(d.options.inboxes) }

// Name returns the name of the workflow.
func (d *Workflow[I, O]) Name() string { return d.name }

// Bind returns the workflow with its function, for [App.Register].
func (d *Workflow[I, O]) Bind(fn func(*W, I) (O, error)) Definition {
	return Definition{
		name: d.name, kind: "workflow", options: d.options,
		problems: append(unbound(fn == nil), roundTrips[I, O](d.name)...),
		input:    reflect.TypeFor[I](), output: reflect.TypeFor[O](),
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

// unbound returns the problem of a definition without a function.
func unbound(missing bool) []string {
	if missing {
		return []string{"it has no function: use Bind"}
	}
	return nil
}

// Definition is a workflow or step with its function.
type Definition struct {
	name, kind    string
	options       workflowOptions // of a workflow
	problems      []string
	input, output reflect.Type // of a workflow
	workflow      func(*W, json.RawMessage) (json.RawMessage, error)
	step          *boundStep
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

	saga  *Saga // the innermost one; nil if there is none
	scope *cancelScope
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

	hooksURL  string // what the URLs of webhooks begin with; empty if the server does not know
	root      *cancelScope
	cancelled *engine.Event // the request to cancel the run; nil if there is none

	store, attributes values
	inboxes           map[string]bool // that the code has opened
	randoms           map[*engine.Scope]*rand.Rand
}

// newTurn returns the state of an execution.
func newTurn(e *engine.Engine, a *App, c call) *turn {
	t := &turn{
		engine: e, app: a, info: infoOf(c), features: c.Server.Features, hooksURL: c.HooksURL,
		store: values{}, attributes: values{}, inboxes: map[string]bool{}, randoms: map[*engine.Scope]*rand.Rand{},
	}
	t.root = &cancelScope{turn: t, run: true}
	for key, value := range e.Attributes() {
		data, _ := json.Marshal(value) // texts always encode
		t.attributes[key] = entry{data, func() int64 { return 0 }}
	}
	e.Observe = t.observe
	return t
}

// need panics, which holds the run, if the server does not have a feature.
func (t *turn) need(feature string) {
	if !t.offers(feature) {
		panic(fmt.Sprintf("%s: the server does not offer %q: upgrade the server", engine.Caller(), feature))
	}
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
func (w *W) with(co *engine.Coroutine) *W {
	return &W{turn: w.turn, co: co, saga: w.saga, scope: w.scope}
}

// ask asks for an operation.
func (w *W) ask(op *engine.Operation) *engine.Operation {
	op.Place = engine.Caller()
	if op.Execute != nil {
		w.turn.stoppable(op)
	}
	w.turn.engine.Ask(w.co, op)
	w.scope.add(op)
	return op
}
