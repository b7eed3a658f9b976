package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/signature"
)

const (
	// longestCall is the size limit of a call in bytes: a log of 1,000 events and an input of 16 MiB fit into it.
	longestCall = 64 << 20
	// invocationTime is how long an invocation may take. The server waits for an answer for four and a half minutes.
	invocationTime = 4 * time.Minute
)

// call is a call of the server; see docs/function-contract.md.
type call struct {
	Type       string `json:"type"`
	Invocation string `json:"invocation"`
	Attempt    int    `json:"attempt"`
	Run        struct {
		ID         string          `json:"id"`
		Workflow   string          `json:"workflow"`
		Deployment string          `json:"deployment"`
		Key        string          `json:"key"`
		ParentID   string          `json:"parentId"`
		Input      json.RawMessage `json:"input"`
		// Store has the values of the run's store.
		Store map[string]json.RawMessage `json:"store"`
	} `json:"run"`
	Server struct {
		Features []string `json:"features"`
	} `json:"server"`
	HooksURL string         `json:"hooksUrl"`
	Events   []engine.Event `json:"events"`
	After    int64          `json:"after"`
	Step     struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Deadline time.Time       `json:"deadline"`
	} `json:"step"`
}

// answer is the answer to an invocation.
type answer struct {
	Commands []any    `json:"commands"`
	Open     []string `json:"open,omitempty"`
}

// Unsigned is an option for [App.Handler] that accepts calls without a signature. Everybody who reaches the handler can
// then execute steps. The reason documents why that is acceptable.
func Unsigned(reason string) HandlerOption {
	return func(o *handlerOptions) { o.unsigned = reason }
}

// SigningKeys is an option for [App.Handler] that accepts calls signed with one of the keys, in the format of
// [signature.ParseKeys].
func SigningKeys(keys string) HandlerOption { return func(o *handlerOptions) { o.keys = keys } }

// HandlerOption configures a handler.
type HandlerOption func(*handlerOptions)

type handlerOptions struct{ keys, unsigned string }

// Handler returns the HTTP handler that the server calls. It fails if definitions cannot work, and if it has neither
// signing keys nor a reason to do without.
func (a *App) Handler(options ...HandlerOption) (http.Handler, error) {
	o := handlerOptions{keys: a.signingKeys}
	for _, set := range options {
		set(&o)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if o.keys == "" && o.unsigned == "" {
		return nil, errors.New("the app has no signing keys: create one with POST /v1/signing-keys and pass SigningKeys," +
			` or accept calls from everybody with Unsigned("reason")`)
	}
	if o.keys == "" {
		return a.guard(http.HandlerFunc(a.serve)), nil
	}
	keys, err := signature.ParseKeys(o.keys)
	if err != nil {
		return nil, fmt.Errorf("parse the signing keys: %w", err)
	}
	return signature.Handler{Next: a.guard(http.HandlerFunc(a.serve)), Keys: keys, Now: a.now}, nil
}

func (a *App) serve(w http.ResponseWriter, r *http.Request) {
	var c call
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestCall))
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, failure{Message: "read the call: " + err.Error()})
		return
	}
	switch c.Type {
	case "workflow":
		a.serveWorkflow(w, r, c)
	case "step":
		a.serveStep(w, r, c)
	default:
		writeError(w, http.StatusBadRequest, failure{Message: fmt.Sprintf("unknown type of call %q", c.Type)})
	}
}

func (a *App) serveWorkflow(w http.ResponseWriter, r *http.Request, c call) {
	ctx, cancel := context.WithTimeout(r.Context(), invocationTime)
	defer cancel()
	got, err := a.invoke(ctx, c)
	if err != nil {
		a.logger.ErrorContext(ctx, "the workflow is held", "run", c.Run.ID, "workflow", c.Run.Workflow, "error", err)
		writeError(w, http.StatusInternalServerError, encodeError(err))
		return
	}
	writeJSON(w, http.StatusOK, got)
}

// invoke runs the workflow as far as it goes. An error means that the run is held: nothing is recorded.
func (a *App) invoke(ctx context.Context, c call) (answer, error) {
	d, ok := a.workflows[c.Run.Workflow]
	if !ok {
		return answer{}, &failure{Message: fmt.Sprintf("app %s has no workflow %q", a.name, c.Run.Workflow), Code: "unknown_workflow"}
	}
	if c.After > 0 {
		return answer{}, errors.New("the log is longer than the call")
	}
	t := newTurn(engine.New(c.Events, nil), a, c)
	var output json.RawMessage
	var failed error
	got, done, err := t.engine.Run(ctx, d.name, func(co *engine.Coroutine) {
		root := &W{turn: t, co: co, scope: t.root}
		output, failed = d.workflow(root, c.Run.Input)
		root.end(failed)
	})
	if err != nil {
		return answer{}, err
	}
	commands := got.Commands
	if done {
		if h := (*heldError)(nil); errors.As(failed, &h) {
			return answer{}, failed
		}
		commands = append(commands, t.ending(output, failed))
	}
	return answer{commands, got.Open}, nil
}

// ending returns the command that ends the run.
func (t *turn) ending(output json.RawMessage, err error) any {
	if t.endsCancelled(err) {
		return map[string]any{"type": "cancelled"}
	}
	if err != nil {
		return map[string]any{"type": "fail", "error": encodeError(err)}
	}
	return map[string]any{"type": "complete", "output": output}
}

func (a *App) serveStep(w http.ResponseWriter, r *http.Request, c call) {
	d, ok := a.steps[c.Step.Name]
	if !ok {
		writeError(w, http.StatusInternalServerError, failure{
			Message: fmt.Sprintf("app %s has no step %q", a.name, c.Step.Name), Code: "unknown_step",
		})
		return
	}
	ctx, store := withStore(withStep(r.Context(), c.Run.ID, c.Step.ID), c.Run.Store)
	if !c.Step.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Step.Deadline)
		defer cancel()
	}
	output, err := once(ctx, 0, func(ctx context.Context) (json.RawMessage, error) {
		return d.step.execute(ctx, c.Step.Input)
	})
	if err == nil {
		writeOutput(w, output, store)
		return
	}
	if again := (*retryError)(nil); errors.As(err, &again) {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int((again.after+time.Second-1)/time.Second))))
	}
	status := http.StatusInternalServerError
	if isPermanent(err) {
		status = http.StatusUnprocessableEntity
	}
	writeError(w, status, encodeError(err))
}

// stepOutput is the content type of a step's answer that has writes to the store beside the output.
const stepOutput = "application/vnd.stepwell.step+json"

// writeOutput answers the call of a step that has completed.
func writeOutput(w http.ResponseWriter, output json.RawMessage, store *stepStore) {
	writes := store.writes()
	if len(writes) == 0 {
		writeJSON(w, http.StatusOK, output)
		return
	}
	data, err := json.Marshal(map[string]any{"output": output, "store": writes})
	if err != nil {
		writeError(w, http.StatusUnprocessableEntity, failure{Message: "encode the output: " + err.Error()})
		return
	}
	w.Header().Set("Content-Type", stepOutput)
	_, _ = w.Write(data) // the server calls again if the answer is lost
}

func writeError(w http.ResponseWriter, status int, f failure) {
	writeJSON(w, status, map[string]failure{"error": f})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the server calls again if the answer is lost
}
