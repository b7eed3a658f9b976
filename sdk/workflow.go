package stepwell

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// None is the input or output of what has none.
type None struct{}

// Workflow is the definition of a workflow with input I and output O. Those who start runs and those who execute them
// use the same definition.
type Workflow[I, O any] struct {
	name    string
	options workflowOptions
}

// WorkflowOption configures a workflow where it is declared.
type WorkflowOption func(*workflowOptions)

type workflowOptions struct {
	batch, failRuns bool
	// inboxes are opened with each run.
	inboxes []string
	// problems are why inboxes cannot work.
	problems []string
}

// WithInbox declares that runs of the workflow have an inbox, which is opened with them. There can be up to 16.
func WithInbox(inbox interface {
	inboxName() string
	lossy() []string
}) WorkflowOption {
	return func(o *workflowOptions) {
		o.inboxes, o.problems = append(o.inboxes, inbox.inboxName()), append(o.problems, inbox.lossy()...)
	}
}

// NewWorkflow returns the definition of a workflow. [Workflow.Bind] gives it a function.
func NewWorkflow[I, O any](name string, options ...WorkflowOption) *Workflow[I, O] {
	d := &Workflow[I, O]{name: name}
	for _, set := range options {
		set(&d.options)
	}
	return d
}

// Inboxes returns the names of the inboxes that runs of the workflow have.
func (d *Workflow[I, O]) Inboxes() []string { return slices.Clone(d.options.inboxes) }

// Name returns the name of the workflow.
func (d *Workflow[I, O]) Name() string { return d.name }

// Bind returns the workflow with its function, for [App.Register].
func (d *Workflow[I, O]) Bind(fn func(*Context, I) (O, error)) Definition {
	return Definition{
		name: d.name, kind: "workflow", options: d.options,
		problems: slices.Concat(unbound(fn == nil), roundTrips[I, O](), d.options.problems),
		input:    reflect.TypeFor[I](), output: reflect.TypeFor[O](),
		workflow: func(w *Context, input json.RawMessage) (json.RawMessage, error) {
			in, err := decode[I](input)
			if err != nil {
				return nil, Block(fmt.Errorf("decode the input: %w", err))
			}
			out, err := fn(w, in)
			if err != nil {
				return nil, err
			}
			data, err := encode(out)
			if err != nil {
				return nil, Block(fmt.Errorf("encode the output: %w", err))
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
	workflow      func(*Context, json.RawMessage) (json.RawMessage, error)
	step          boundStep
}

// decode decodes JSON; nothing at all is the zero value.
func decode[T any](data json.RawMessage) (v T, err error) {
	if len(data) == 0 {
		return v, nil
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// Context is the handle of a workflow's code: it asks for steps, time and payloads, and waits for them. It is valid in
// the function that gets it, and only in that function's goroutine. It is no [context.Context], because a workflow does
// no I/O. By convention its variable is w, so that ctx is the context of a step.
type Context struct {
	exec *execution
	co   *engine.Coroutine

	saga  *Saga // the innermost one; nil if there is none
	scope *cancelScope
}

// execution is a workflow of a run in the memory of a process, for one call or for several that go on with each other.
// Its coroutines share it.
type execution struct {
	engine  *engine.Engine
	app     *App
	info    RunInfo
	seed    string // of random numbers: the ID of the run, or of that whose log it goes on with
	options workflowOptions
	onEnd   []func(*Context, error)
	output  json.RawMessage // of the workflow's function, as failed is
	failed  error

	// Of the present call:
	features []string  // of the server
	attempt  int       // number of the call for the same events
	deadline time.Time // zero if there is none
	hooksURL string    // what the URLs of webhooks begin with; empty if the server does not know
	warm     bool      // it continues an earlier call
	host     *callHost // nil if there is none
	sender   *sender   // of what the workflow writes to streams

	root      *cancelScope
	cancelled *engine.Event // the request to cancel the run; nil if there is none

	store, attributes values
	inboxes           map[string]bool     // that the code has opened
	replied           map[string]bool     // IDs of the steps of answers
	children          []*engine.Operation // that end with the run, perhaps with some that have ended
	randoms           randoms
	chunks            map[string]int64 // how many the workflow has written, by stream
}

func infoOf(c call) RunInfo {
	return RunInfo{c.Run.ID, c.Run.Workflow, c.Run.Deployment, c.Run.Key, c.Run.ParentID}
}

// offers reports whether the server has a feature.
func (x *execution) offers(feature string) bool { return slices.Contains(x.features, feature) }

// RunInfo describes a run.
type RunInfo struct {
	ID, Workflow, Deployment string
	// Key is the run's key, and ParentID its parent's ID; empty if it has none.
	Key, ParentID string
}

// Info describes the run.
func (w *Context) Info() RunInfo { return w.exec.info }

// with returns the handle of another coroutine.
func (w *Context) with(co *engine.Coroutine) *Context {
	return &Context{exec: w.exec, co: co, saga: w.saga, scope: w.scope}
}

// idOr returns the ID if there is one, and otherwise that of the next operation with the name.
func (w *Context) idOr(id, name string) string {
	if id != "" {
		return id
	}
	return w.co.Scope.ID(name)
}

// ask asks for an operation.
func (w *Context) ask(op *engine.Operation) *engine.Operation {
	if op.Place == "" {
		op.Place = engine.Caller()
	}
	if !validID(op.ID) {
		panic(fmt.Sprintf("%s: %q cannot be the ID of a %s: give it a name, or an ID, of 1 to 256 printable characters"+
			" without spaces and slashes", op.Place, op.ID, op.Kind))
	}
	if op.Execute != nil {
		w.exec.stoppable(op)
	}
	w.exec.engine.Ask(w.co, op)
	w.scope.add(op)
	return op
}

// validID reports whether the server takes an ID.
func validID(id string) bool {
	return 0 < len(id) && len(id) <= 256 && !strings.ContainsFunc(id, func(c rune) bool {
		return c == ' ' || c == '/' || !unicode.IsPrint(c)
	})
}

// askUnlessCancelled asks for an operation. If the handle's part of the workflow was cancelled, it is none that the
// server could be asked to cancel or close.
func (w *Context) askUnlessCancelled(op *engine.Operation) {
	if w.scope.err == nil {
		w.ask(op)
		return
	}
	w.co.Check()
	op.Cancelled = true
}

// BatchResults writes the results of steps that are executed inline with the next thing that has to be written anyway:
// a wait, a remote step, or the end. If the process dies, all steps since the last write are executed again, so use it
// for steps that may be repeated. What [Value] returned is on disk before the next step begins all the same.
//
// By default each result is on disk before the next step begins, and soon if others are still in progress. That costs a
// commit for each step, or one for all that have ended at about the same time.
func BatchResults() WorkflowOption { return func(o *workflowOptions) { o.batch = true } }

// FailOnPanic makes a panic of the workflow fail its run with the code panic, and the stack in the details. By default
// it blocks the run: nothing is recorded, and the server calls the workflow again later, or when a new version is
// deployed. A panic in a step is a failed attempt.
func FailOnPanic() WorkflowOption { return func(o *workflowOptions) { o.failRuns = true } }

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

	grace time.Duration // of its cancellation
}

// defaultChildGrace is as long as that of a flow.
const defaultChildGrace = time.Hour

// ChildGrace sets how long the child may take to end by itself when the part of the workflow that has started it is
// cancelled, or the workflow ends; an hour by default. The child is asked to cancel, so that its sagas undo what it has
// done, and it is waited for. It is forced after the grace; 0 forces at once.
func ChildGrace(d time.Duration) ChildOption { return childOption(func(c *startChild) { c.grace = d }) }

// LeaveOnParentEnd lets the child go on when its parent ends. By default it is cancelled; see [ChildGrace].
func LeaveOnParentEnd() ChildOption {
	return childOption(func(c *startChild) { c.OnParentEnd = "leave" })
}

// Child starts the workflow as a child run, and returns the future of its output. If the child does not complete, the
// error is a [*RunFailedError] or a [*RunCancelledError], as for those who wait for a run from outside.
func (d *Workflow[I, O]) Child(w *Context, in I, options ...ChildOption) *Future[O] {
	if w.scope.err != nil {
		w.co.Check()
		return failed[O](w.scope.err)
	}
	input, err := encode(in)
	if err != nil {
		return failed[O](fmt.Errorf("encode the input of workflow %s: %w", d.name, err))
	}
	if err := checkSize(w.exec.app.codec, "the input of workflow "+d.name, len(input)); err != nil {
		return failed[O](err)
	}
	c := startChild{Type: "startChild", Workflow: d.name, Input: input, At: engine.Caller(), grace: defaultChildGrace}
	for _, set := range options {
		set.configureChild(&c)
	}
	c.ID = w.idOr(c.ID, d.name)
	op := w.ask(&engine.Operation{
		Kind: engine.KindChild, ID: c.ID, Name: d.name, Place: c.At, Input: input, Command: c, Grace: c.grace,
	})
	if c.OnParentEnd == "" {
		w.exec.children = append(w.exec.children, op)
	}
	return resultOf[O](w.exec, op)
}

// childError returns the error of a child that did not complete.
func childError(x *execution, op *engine.Operation, e *engine.Event) error {
	f, id := decodeFailure(e.Payload), x.engine.ChildOf(op)
	if e.Data.ErrorCode == "child_cancelled" || e.Data.ErrorCode == codeCancelled {
		return fmt.Errorf("child %s: %w", op.ID, &RunCancelledError{RunID: id})
	}
	return fmt.Errorf("child %s: %w", op.ID, &RunFailedError{id, RunFailure{f.Code, f.Message, f.Details}})
}
