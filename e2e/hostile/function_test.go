package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
)

// function is the function of both projects. Its workflows are
//
//	one     a step that returns the input, as the run does
//	three   three steps, one after the other, which do nothing
//	fork    starts itself twice
//	hang    as many steps as its input says, which never answer
//	ask     the same with HTTP requests
//	hooks   the hooks of its input, a list of openHook commands; it never ends
//	huge    as many steps as its input says, which send 15 MiB and do not end their answers
//	hook    opens a webhook with its input as token, and never responds
//	mute    the same, but requests wait a minute for its response
type function struct {
	*httptest.Server

	hanging atomic.Int64 // calls of steps that hang now
}

func newFunction(t *testing.T) *function {
	t.Helper()
	f := &function{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.CloseClientConnections() // ends the calls that hang
		f.Close()
	})
	return f
}

// call is the body of a call of the server; see docs/function-contract.md.
type call struct {
	Type string `json:"type"`
	Run  struct {
		Workflow string          `json:"workflow"`
		Input    json.RawMessage `json:"input"`
	} `json:"run"`
	Step struct {
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	} `json:"step"`
	Events []struct {
		Type          string          `json:"type"`
		CorrelationID string          `json:"correlationId"`
		Payload       json.RawMessage `json:"payload"`
	} `json:"events"`
}

func (f *function) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == hangPath {
		f.hang(r)
		return
	}
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.Type == "step" {
		f.step(w, r, c)
		return
	}
	commands, err := c.next(f.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"commands": commands})
}

// step executes a step.
func (f *function) step(w http.ResponseWriter, r *http.Request, c call) {
	switch c.Step.Name {
	case "hang":
		f.hang(r)
	case "huge":
		f.hanging.Add(1) // the server may not read the answer before there is memory for it
		defer f.hanging.Add(-1)
		_, _ = w.Write(bytes.Repeat([]byte(" "), 15<<20))
		w.(http.Flusher).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case "huge-number":
		_, _ = w.Write([]byte(hugeNumber))
	case "echo":
		_, _ = w.Write(c.Step.Input)
	default:
		_, _ = w.Write([]byte("3"))
	}
}

// hangPath is a path of the function that never answers.
const hangPath = "/hang"

// hang waits until the client has given up.
func (f *function) hang(r *http.Request) {
	f.hanging.Add(1)
	defer f.hanging.Add(-1)
	_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a connection whose request it has read
	<-r.Context().Done()
}

// next returns the commands of the workflow. The address is that of the function.
func (c call) next(url string) ([]any, error) {
	seen := map[string]bool{}
	var result json.RawMessage // of the last step that has ended
	for _, e := range c.Events {
		seen[e.Type+" "+e.CorrelationID] = true
		if e.Type == "step_completed" {
			result = e.Payload
		}
	}
	step := func(id, name string) any { return map[string]any{"type": "runStep", "id": id, "name": name} }
	switch c.Run.Workflow {
	case "one":
		if !seen["step_created 1"] {
			return []any{map[string]any{"type": "runStep", "id": "1", "name": "echo", "input": c.Run.Input}}, nil
		}
		if !seen["step_completed 1"] {
			return []any{}, nil
		}
		return []any{map[string]any{"type": "complete", "output": result}}, nil
	case "fork":
		start := func(id string) any { return map[string]any{"type": "startRun", "id": id, "workflow": "fork"} }
		return []any{start("1"), start("2"), map[string]any{"type": "complete"}}, nil
	case "three":
		for _, id := range []string{"1", "2", "3"} {
			if !seen["step_created "+id] {
				return []any{step(id, "work")}, nil
			}
			if !seen["step_completed "+id] {
				return []any{}, nil
			}
		}
		return []any{map[string]any{"type": "complete", "output": 3}}, nil
	case "hang", "huge", "ask":
		if seen["step_created 0"] {
			return []any{}, nil
		}
		var n int
		if err := json.Unmarshal(c.Run.Input, &n); err != nil {
			return nil, err
		}
		steps := make([]any, n)
		for i := range steps {
			steps[i] = step(strconv.Itoa(i), c.Run.Workflow)
			if c.Run.Workflow == "ask" {
				steps[i].(map[string]any)["http"] = map[string]string{"url": url + hangPath}
			}
		}
		return steps, nil
	case "hooks":
		if seen["hook_created 0"] {
			return []any{}, nil
		}
		var hooks []any
		return hooks, json.Unmarshal(c.Run.Input, &hooks)
	case "hook", "mute":
		if seen["hook_created h"] {
			return []any{}, nil
		}
		spec := map[string]any{}
		if c.Run.Workflow == "mute" {
			spec["respond"] = "60s"
		}
		return []any{map[string]any{"type": "openHook", "id": "h", "token": c.Run.Input, "webhook": spec}}, nil
	default:
		return nil, fmt.Errorf("no workflow %q", c.Run.Workflow)
	}
}
