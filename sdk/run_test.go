package stepwell

import (
	"encoding/json"
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
