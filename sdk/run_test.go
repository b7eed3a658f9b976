package stepwell

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTheLogOfARunIsWhole reads a log with one event per page, and a payload that is too large for lists.
func TestTheLogOfARunIsWhole(t *testing.T) {
	t.Parallel()
	log := []map[string]any{
		{"seq": 1, "type": "run_created", "data": map[string]any{}, "payload": "7"},
		{"seq": 2, "type": "run_started", "data": map[string]any{}},
		{"seq": 3, "type": "step_created", "correlationId": "charge", "data": map[string]any{"stepName": "charge"}, "payload": "7"},
		{"seq": 4, "type": "step_completed", "correlationId": "charge", "data": map[string]any{}, "truncated": true},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/runs/run0", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"id":"run0","workflow":"order"}`))
	})
	mux.HandleFunc("GET /v1/runs/run0/events", func(w http.ResponseWriter, r *http.Request) {
		at := len(r.URL.Query().Get("cursor"))
		page := map[string]any{"data": log[at : at+1]}
		if at+1 < len(log) {
			page["cursor"] = strings.Repeat("x", at+1)
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	mux.HandleFunc("GET /v1/runs/run0/events/4/payload", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`"large"`))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c, err := NewClient(ClientConfig{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	order, out := NewWorkflow[string, string]("order"), ""
	app := NewApp(AppConfig{Name: "test"})
	app.Register(order.Bind(func(w *Context, in string) (_ string, err error) {
		if out, err = NewStep[string, string]("charge").Run(w, in); err != nil {
			return "", err
		}
		return out, w.Sleep(1)
	}))
	got, err := order.Handle(c, "run0").Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Replay(t.Context(), got); err != nil || out != "large" {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestExecute takes the run of the start if that has ended, and waits for it otherwise.
func TestExecute(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		started, waited string // answers
		want            string
	}{
		"it ends soon":              {`{"id":"run0","status":"completed","output":"7","outputEncoding":"json"}`, ``, "7 <nil>"},
		"it fails":                  {`{"id":"run0","status":"failed","error":{"message":"no"}}`, ``, " run run0 failed: no"},
		"an old server, or a delay": {`{"id":"run0","status":"pending"}`, `{"id":"run0","status":"cancelled"}`, " run run0 was cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			starts, key := 0, ""
			mux := http.NewServeMux()
			mux.HandleFunc("POST /v1/runs", func(w http.ResponseWriter, r *http.Request) {
				var body startBody
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Prefer") != "wait=30" {
					t.Errorf("got %v, Prefer %q", err, r.Header.Get("Prefer"))
				}
				if starts++; starts == 1 {
					key = body.IdempotencyKey
					panic(http.ErrAbortHandler) // the answer is lost
				}
				if body.IdempotencyKey != key {
					t.Error("a repeated start has another key")
				}
				_, _ = w.Write([]byte(test.started))
			})
			mux.HandleFunc("GET /v1/runs/run0/wait", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(test.waited))
			})
			got, err := NewWorkflow[string, string]("order").Execute(t.Context(), newTestClient(t, mux), "x")
			if text := fmt.Sprint(got, " ", err); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}
