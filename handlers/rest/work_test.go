package rest_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/queue"
)

// deliver makes this process deliver.
func (a api) deliver(t *testing.T) {
	t.Helper()
	w, err := a.queue.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 100, MaxDeliveries: 10, FailureWindow: time.Hour, BodyMemory: 64 << 20,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Handlers: engine.New(a.queue, a.log).Handlers(),
	})
	if err == nil {
		err = w.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop(t.Context()) })
}

// TestAWorkerTakesAndAnswersCalls: it registers with its first request, gets the calls of a run and of its step as a
// function behind a URL does, and answers with the tokens of the calls.
func TestAWorkerTakesAndAnswersCalls(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.deliver(t)
	a.post(t, "/v1/work", `{"deployment":"shop","worker":"w","slots":1,"wait":"0s",
		"registration":{"workflows":["order"],"build":"7","schemas":{"order":{"input":{"type":"object"}}}}}`, 200)
	d := a.get(t, "/v1/deployments/shop")
	if d["url"] != "pull:" || d["build"] != "7" || d["schemas"] == nil {
		t.Errorf("registered as %v", d)
	}
	id := a.startedID(t, `{"workflow":"order","input":{"n":1}}`, 201)
	for _, tt := range []struct {
		kind, answer string
		seen         float64
	}{
		{"workflow", `{"status":200,"body":{"commands":[{"type":"runStep","id":"s","name":"pay","input":7}]}}`, 2},
		{"step", `{"status":200,"body":"paid"}`, 0},
		{"workflow", `{"status":200,"body":{"commands":[{"type":"complete","output":"shipped"}]}}`, 5},
	} {
		got := a.post(t, "/v1/work", `{"deployment":"shop","worker":"w","slots":1}`, 200)["calls"].([]any)[0].(object)
		body := got["body"].(object)
		if body["type"] != tt.kind || got["seen"] != tt.seen || got["headers"].(object)["Stepwell-Run"] != string(id) {
			t.Errorf("got the call %v, want %+v", got, tt)
		}
		path := "/v1/runs/" + string(id) + "/call/answer"
		a.sendAs(t, body["token"].(string), http.MethodPost, path, tt.answer, 204)
		if status, _ := a.as(t, body["token"].(string), http.MethodPost, path, tt.answer); status < 409 {
			t.Errorf("answered twice, with %d", status)
		}
	}
	if run := a.get(t, "/v1/runs/"+string(id)); run["status"] != "completed" || run["output"] != "shipped" {
		t.Errorf("the run is %v", run)
	}
}

// TestWorkIsRefused, each time with a code.
func TestWorkIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put(t, "served", `{"url":"http://served.test"}`)
	many := `"` + strings.Repeat(`x","`, 1000) + `x"`
	for body, code := range map[string]string{
		`{"deployment":"shop","slots":1}`:                                                      "invalid_request",
		`{"worker":"w","slots":1}`:                                                             "invalid_request",
		`{"deployment":"shop","worker":"` + many[:65] + `","slots":1}`:                         "invalid_request",
		`{"deployment":"shop","worker":"w","slots":1001}`:                                      "invalid_request",
		`{"deployment":"shop","worker":"w","slots":-1}`:                                        "invalid_request",
		`{"deployment":"shop","worker":"w","slots":1,"wait":"31s"}`:                            "invalid_request",
		`{"deployment":"shop","worker":"w","slots":1,"calls":[` + many + `]}`:                  "invalid_request",
		`{"deployment":"shop","worker":"w","slots":1,"registration":{"schemas":{"order":{}}}}`: "invalid_request",
		`{"deployment":"latest","worker":"w","slots":1}`:                                       "invalid_request",
	} {
		a.wantRejected(t, http.MethodPost, "/v1/work", body, 400, code)
	}
	served := `{"deployment":"served","worker":"w","slots":1}`
	a.wantRejected(t, http.MethodPost, "/v1/work", served, 409, "deployment_has_url")
	a.wantRejected(t, http.MethodPost, "/v1/work", `{"deployment":"shop","worker":"w","slots":1}`, 503, "no_calls")
	over := a.post(t, "/v1/work", `{"deployment":"shop","worker":"w","slots":1,"calls":["rh_none"]}`, 200)["over"].([]any)
	if len(over) != 1 || over[0] != "rh_none" {
		t.Errorf("over: %v", over)
	}
}
