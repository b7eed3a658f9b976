package stepwelltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// caller passes the calls of the server on to the app: those of workflows twice. It keeps what steps did, and crashes
// where it is told to.
type caller struct {
	tb     testing.TB
	app    http.Handler
	faults *faults
	// chooseInline returns which of n inline steps in progress ends next; nil: the first.
	chooseInline func(n int) int
	effects      map[string]*effect // by idempotency key
	calls        []stepCall
	spied        map[string]bool // names of steps that need no function
}

// effect is what a step may do outside: all its attempts have one idempotency key.
type effect struct {
	RunID, ID, Name, Input string
}

// stepCall is one attempt of a step.
type stepCall struct {
	name  string
	input json.RawMessage
}

// call is what the caller reads of a call.
type call struct {
	Type string `json:"type"`
	Run  struct {
		ID string `json:"id"`
	} `json:"run"`
	Step struct {
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	} `json:"step"`
}

// ServeHTTP implements http.Handler.
func (c *caller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var got call
	if err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil {
		c.tb.Errorf("read a call: %v", err)
		return
	}
	answer := httptest.NewRecorder()
	if got.Type == "step" {
		c.callStep(answer, r, got, body)
	} else {
		c.callWorkflow(answer, r, got, body)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // a recorder
}

func (c *caller) callStep(w *httptest.ResponseRecorder, r *http.Request, got call, body []byte) {
	answer := c.post(r.Context(), r, body)
	if answer.Code == http.StatusInternalServerError && hasCode(answer, "unknown_step") {
		if !c.spied[got.Step.Name] {
			c.tb.Errorf("step %q has no function: bind it in New, or use Stub", got.Step.Name)
			writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"error": map[string]string{
				"code": "unknown_step", "message": fmt.Sprintf("step %q has no function", got.Step.Name),
			}})
			return
		}
		answer = httptest.NewRecorder()
		writeJSON(answer, http.StatusOK, nil)
	}
	c.happened(got.Run.ID, got.Step.ID, got.Step.Name, got.Step.Input)
	if c.faults.crash("the result of step %s of run %s was lost", got.Step.ID, got.Run.ID) {
		answer.Code = memserver.StatusLost
	}
	*w = *answer
}

// callWorkflow calls a workflow twice. The second call gets the results of the inline steps of the first.
func (c *caller) callWorkflow(w *httptest.ResponseRecorder, r *http.Request, got call, body []byte) {
	first := &inline{c: c, runID: got.Run.ID}
	answer := c.post(engine.WithInline(r.Context(), first), r, body)
	if first.died {
		w.Code = memserver.StatusLost
		return
	}
	second := &repeated{of: first.done}
	again := c.post(engine.WithInline(r.Context(), second), r, body)
	if answer.Code != again.Code || answer.Code == http.StatusOK && !bytes.Equal(answer.Body.Bytes(), again.Body.Bytes()) {
		writeJSON(w, http.StatusInternalServerError, map[string]any{"error": map[string]string{
			"message": fmt.Sprintf("two calls with the same log had different answers:\n%d %s\n%d %s",
				answer.Code, answer.Body, again.Code, again.Body),
		}})
		return
	}
	if c.faults.crash("an answer of run %s was lost", got.Run.ID) {
		answer.Code = memserver.StatusLost
	}
	*w = *answer
}

func (c *caller) post(ctx context.Context, r *http.Request, body []byte) *httptest.ResponseRecorder {
	again := r.Clone(ctx)
	again.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	c.app.ServeHTTP(w, again)
	return w
}

// happened keeps an attempt of a step.
func (c *caller) happened(runID, id, name string, input json.RawMessage) {
	c.effects[runID+"/"+id] = &effect{runID, id, name, string(input)}
	c.calls = append(c.calls, stepCall{name, input})
}

// inline executes inline steps one at a time.
type inline struct {
	c     *caller
	runID string
	done  []executed
	died  bool
}

// executed is an inline step that has been executed.
type executed struct {
	id     string
	result engine.Result
}

// errDied ends an invocation whose process died.
var errDied = errors.New("the process died")

// Next implements engine.Inline.
func (i *inline) Next(running []*engine.Operation) int {
	if i.c.chooseInline == nil {
		return 0
	}
	return i.c.chooseInline(len(running))
}

// Execute implements engine.Inline.
func (i *inline) Execute(ctx context.Context, op *engine.Operation) (engine.Result, error) {
	r := op.Execute(ctx)
	i.c.happened(i.runID, op.ID, op.Name, op.Input)
	i.done = append(i.done, executed{op.ID, r})
	const what = "the process died after inline step %s of run %s, before its result was recorded"
	if i.c.faults.crash(what, op.ID, i.runID) {
		i.died = true
		return engine.Result{}, errDied
	}
	return r, nil
}

// repeated repeats the inline steps of another invocation.
type repeated struct{ of []executed }

// Next implements engine.Inline.
func (r *repeated) Next(running []*engine.Operation) int {
	return max(0, slices.IndexFunc(running, func(op *engine.Operation) bool {
		return len(r.of) > 0 && op.ID == r.of[0].id
	}))
}

// Execute implements engine.Inline.
func (r *repeated) Execute(_ context.Context, op *engine.Operation) (engine.Result, error) {
	if len(r.of) == 0 || r.of[0].id != op.ID {
		return engine.Result{}, fmt.Errorf("the second of two calls with the same log asks for inline step %s at %s,"+
			" which the first did not", op.ID, op.Place)
	}
	next := r.of[0]
	r.of = r.of[1:]
	return next.result, nil
}

func hasCode(answer *httptest.ResponseRecorder, code string) bool {
	var failure struct{ Error struct{ Code string } }
	return json.Unmarshal(answer.Body.Bytes(), &failure) == nil && failure.Error.Code == code
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this file
	}
	w.WriteHeader(status)
	_, _ = w.Write(data) // a recorder
}
