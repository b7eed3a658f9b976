package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
)

// function is the function of both projects. Its workflows are
//
//	three   three steps, one after the other, which do nothing
//	hang    as many steps as its input says, which never answer
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
		Name string `json:"name"`
	} `json:"step"`
	Events []struct {
		Type          string `json:"type"`
		CorrelationID string `json:"correlationId"`
	} `json:"events"`
}

func (f *function) serve(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.Type == "step" {
		if c.Step.Name == "hang" {
			f.hanging.Add(1)
			defer f.hanging.Add(-1)
			<-r.Context().Done()
			return
		}
		if c.Step.Name == "huge" {
			f.hanging.Add(1)
			defer f.hanging.Add(-1)
			_, _ = w.Write(bytes.Repeat([]byte(" "), 15<<20))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte("3"))
		return
	}
	commands, err := c.next()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"commands": commands})
}

// next returns the commands of the workflow.
func (c call) next() ([]any, error) {
	seen := map[string]bool{}
	for _, e := range c.Events {
		seen[e.Type+" "+e.CorrelationID] = true
	}
	step := func(id, name string) any { return map[string]any{"type": "runStep", "id": id, "name": name} }
	switch c.Run.Workflow {
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
	case "hang", "huge":
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
