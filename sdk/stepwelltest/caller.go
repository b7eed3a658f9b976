package stepwelltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// caller passes the calls of the server on to the app: those of workflows twice. It keeps what steps did, and crashes
// where it is told to.
type caller struct {
	tb     testing.TB
	server *memserver.Server
	app    http.Handler
	faults *faults
	// chooseInline returns which of n inline steps in progress ends next; nil: the first.
	chooseInline func(n int) int
	effects      map[string]effect // by idempotency key
	calls        []stepCall
	spied        map[string]bool // names of steps that need no function
	repeats      int             // how often each call of a workflow is repeated with the same log
}

// mostRepeats finds code that does something else once in eight times, as that which ranges over a map with two keys,
// with 99 %.
const mostRepeats = 40

// mostRepeated is how many bytes of calls are repeated for one call at most, besides one repetition.
const mostRepeated = 1 << 20

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
	Type    string `json:"type"`
	Attempt int    `json:"attempt"`
	Run     struct {
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
	answer := c.callWorkflow
	if got.Type == "step" {
		answer = c.callStep
	}
	a := answer(r, got, body)
	maps.Copy(w.Header(), a.Header())
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes()) // a recorder
}

func (c *caller) callStep(r *http.Request, got call, body []byte) *httptest.ResponseRecorder {
	called := &calledStep{c, c.server.Run(got.Run.ID), got.Step.ID, false}
	answer := c.post(context.WithValue(r.Context(), calledKey{}, called), r, body)
	if answer.Code == http.StatusServiceUnavailable && hasCode(answer, "unknown_step") {
		if !c.spied[got.Step.Name] {
			c.tb.Errorf("step %q has no function: bind it in New, or use Stub", got.Step.Name)
			return newAnswer(http.StatusUnprocessableEntity,
				errorBody("unknown_step", fmt.Sprintf("step %q has no function", got.Step.Name)))
		}
		answer = newAnswer(http.StatusOK, nil)
	}
	c.happened(got.Run.ID, got.Step.ID, got.Step.Name, got.Step.Input)
	if called.died || c.faults.crash("the result of step %s of run %s was lost", got.Step.ID, got.Run.ID) {
		answer.Code = memserver.StatusLost
	}
	return answer
}

// callWorkflow calls a workflow, and repeats the call with the same log, some times, and with the log as the first call
// has left it.
func (c *caller) callWorkflow(r *http.Request, got call, body []byte) *httptest.ResponseRecorder {
	first := &inline{c: c, run: c.server.Run(got.Run.ID)}
	answer := c.post(with(r.Context(), first), r, body)
	if first.died {
		return newAnswer(memserver.StatusDied, nil)
	}
	var again []*repeated
	for range min(c.repeats, 1+mostRepeated/len(body)) {
		again = append(again, &repeated{body: body, results: first.results, commits: first.commits, writes: first.writes})
	}
	if answer.Code == http.StatusOK && got.Attempt == 1 && first.canResume() {
		again = append(again, first.afterwards())
	}
	for _, repeated := range again {
		if difference := c.repeat(r, repeated, answer); difference != "" {
			return newAnswer(http.StatusInternalServerError, errorBody("", difference))
		}
	}
	if c.faults.crash("an answer of run %s was lost", got.Run.ID) {
		answer.Code = memserver.StatusLost
	}
	return answer
}

// repeat makes a call again. It returns what is different from the first one; empty if nothing is.
func (c *caller) repeat(r *http.Request, second *repeated, answer *httptest.ResponseRecorder) string {
	got := c.post(with(r.Context(), second), r, second.body)
	switch {
	case second.differs != "":
		return second.differs
	case got.Code != answer.Code, got.Code == http.StatusOK && !bytes.Equal(got.Body.Bytes(), answer.Body.Bytes()):
		return fmt.Sprintf("two calls with the same log had different answers:\n%d %s\n%d %s",
			answer.Code, answer.Body, got.Code, got.Body)
	case got.Code == http.StatusOK && len(second.writes) > 0:
		return fmt.Sprintf("the second of two calls with the same log does not write to a stream what the first one does: %s",
			second.writes[0])
	case got.Code == http.StatusOK && len(second.commits) > 0:
		return fmt.Sprintf("the second of two calls with the same log does not write what the first one does: %s",
			second.commits[0].commands)
	}
	return ""
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
	c.effects[runID+"/"+id] = effect{runID, id, name, string(input)}
	c.calls = append(c.calls, stepCall{name, input})
}

func hasCode(answer *httptest.ResponseRecorder, code string) bool {
	var failure struct{ Error struct{ Code string } }
	return json.Unmarshal(answer.Body.Bytes(), &failure) == nil && failure.Error.Code == code
}

// newAnswer returns an answer with a value as JSON.
func newAnswer(status int, v any) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // a recorder
	return w
}

// errorBody returns the body of an answer that is an error.
func errorBody(code, message string) any {
	return map[string]any{"error": map[string]string{"code": code, "message": message}}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this package, and JSON
	}
	return data
}
