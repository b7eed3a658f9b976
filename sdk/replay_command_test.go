package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakeAPI serves runs, one per page, whose only step has the given name. The step's output is too large for lists.
func fakeAPI(t *testing.T, steps ...string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, entry, cursor any) {
		body := map[string]any{"data": []any{entry}}
		if cursor != nil {
			body["cursor"] = cursor
		}
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("GET /v1/runs", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("workflow") != "order" || q.Get("status") != "running" || q.Get("createdAfter") == "" {
			t.Errorf("asked for %s", r.URL)
		}
		n := len(r.URL.Query().Get("cursor"))
		var cursor any
		if n+1 < len(steps) {
			cursor = strings.Repeat("x", n+1)
		}
		page(w, map[string]any{"id": fmt.Sprint("run", n), "workflow": "order"}, cursor)
	})
	for n, step := range steps {
		path := fmt.Sprintf("GET /v1/runs/run%d/events", n)
		log := []map[string]any{
			{"seq": 1, "type": "run_created", "data": map[string]any{}, "payload": "7"},
			{"seq": 2, "type": "run_started", "data": map[string]any{}},
			{"seq": 3, "type": "step_created", "correlationId": step, "data": map[string]any{"stepName": step}, "payload": "7"},
			{"seq": 4, "type": "step_completed", "correlationId": step, "data": map[string]any{}, "truncated": true},
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			at := len(r.URL.Query().Get("cursor"))
			var cursor any
			if at+1 < len(log) {
				cursor = strings.Repeat("x", at+1)
			}
			page(w, log[at], cursor)
		})
		mux.HandleFunc(path+"/4/payload", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer sk_read" {
				t.Errorf("the key is %q", r.Header.Get("Authorization"))
			}
			_, _ = w.Write([]byte(`"large"`))
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestReplayCommand(t *testing.T) {
	t.Setenv("STEPWELL_API_KEY", "sk_read")
	app := NewApp(AppConfig{Name: "test"})
	app.Register(DeclareWorkflow[string, string]("order").Bind(func(w *Context, in string) (string, error) {
		out, err := DeclareStep[string, string]("charge").Run(w, in)
		if err == nil && out != "large" {
			t.Errorf("the step's output is %q", out)
		}
		w.Sleep(1)
		return out, err
	}))
	tests := []struct {
		steps []string
		table string
		err   string
	}{
		{[]string{"charge", "charge"}, "order      2      2        0", ""},
		{[]string{"charge", "pay", "refund"}, "order      3      1        2", "run run1 of workflow order does not replay"},
	}
	for _, test := range tests {
		var out bytes.Buffer
		err := app.replayRuns(context.Background(), []string{"--server", fakeAPI(t, test.steps...).URL, "--since", "24h"}, &out)
		if !strings.Contains(out.String(), test.table) {
			t.Errorf("%v: printed\n%s", test.steps, out.String())
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%v: got %v, want %q", test.steps, err, test.err)
		}
	}
	err := app.replayRuns(context.Background(), []string{"--workflow", "ordre"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), `has no workflow "ordre"; it has order`) {
		t.Errorf("a misspelled workflow: %v", err)
	}
}
