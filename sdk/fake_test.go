package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a server with one run. It calls an app, and takes commands during calls.
type fake struct {
	t        *testing.T
	app      *App
	handler  http.Handler
	url      string // of the server
	features []string
	attempt  int

	mu     sync.Mutex
	log    []map[string]any
	writes int // requests with commands
	status int // of requests with commands, if not 0
}

var allFeatures = append([]string{"commands", "keep"}, required...)

func newFake(t *testing.T, app *App) *fake {
	t.Helper()
	f := &fake{t: t, app: app, features: allFeatures, attempt: 1}
	f.append(map[string]any{"type": "run_created"})
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	f.url = server.URL
	app.serving.server = f.url
	t.Cleanup(app.serving.kept.drop)
	var err error
	if f.handler, err = app.Handler(); err != nil {
		t.Fatal(err)
	}
	return f
}

// newTestApp returns an app that logs to a buffer.
func newTestApp(definitions ...Definition) (*App, *bytes.Buffer) {
	var lines bytes.Buffer
	app := NewApp(AppConfig{Name: "test", Unsigned: "a test", Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	app.Register(definitions...)
	return app, &lines
}

func (f *fake) append(e map[string]any) {
	e["seq"], e["createdAt"] = len(f.log)+1, time.Unix(int64(len(f.log)), 0).UTC()
	if e["data"] == nil {
		e["data"] = map[string]any{}
	}
	f.log = append(f.log, e)
}

// happen appends an event from outside.
func (f *fake) happen(eventType, id string, payload any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.append(map[string]any{"type": eventType, "correlationId": id, "payload": payload})
}

// answerWrites makes requests with commands fail with the status; 0 lets them succeed.
func (f *fake) answerWrites(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = status
}

// written returns how many requests had commands.
func (f *fake) written() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// types returns what the log has: types with IDs.
func (f *fake) types() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, e := range f.log[1:] {
		id, _ := e["correlationId"].(string)
		all = append(all, strings.TrimSuffix(e["type"].(string)+" "+id, " "))
	}
	return strings.Join(all, ", ")
}

func (f *fake) has(event string) bool { return strings.Contains(f.types(), event) }

// serve serves the API.
func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer swct_1" {
		f.t.Errorf("%s was authorized by %q", r.URL, r.Header.Get("Authorization"))
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	switch {
	case strings.HasSuffix(r.URL.Path, "/payload"):
		_, _ = io.WriteString(w, `"large"`)
	case r.Method == http.MethodGet && after == len(f.log):
		_, _ = io.WriteString(w, `{"data": []}`)
	case r.Method == http.MethodGet:
		event := f.log[after]
		page := map[string]any{"data": []any{event}}
		if after+1 < len(f.log) {
			page["cursor"] = "more"
		}
		if r.URL.Query().Get("cursor") != "" {
			page = map[string]any{"data": f.log[after+1:]}
		}
		_ = json.NewEncoder(w).Encode(page)
	case f.status != 0:
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, `{"error": {"code": "stale_invocation"}}`)
	default:
		f.writes++
		f.apply(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{"seq": len(f.log), "events": f.log[after:]})
	}
}

// apply carries out commands.
func (f *fake) apply(body io.Reader) {
	var got struct {
		Commands []map[string]any
		Open     []string
	}
	if err := json.NewDecoder(body).Decode(&got); err != nil {
		f.t.Error(err)
	}
	for _, c := range got.Commands {
		id := c["id"]
		create := func(eventType string) {
			f.append(map[string]any{"type": eventType, "correlationId": id, "payload": c["input"], "data": map[string]any{
				"stepName": c["name"], "at": c["at"], "open": got.Open, "token": c["token"],
			}})
		}
		created := slices.ContainsFunc(f.log, func(e map[string]any) bool {
			return e["type"] == "step_created" && e["correlationId"] == id
		})
		switch c["type"] {
		case "runStep":
			create("step_created")
		case "recordStep":
			if !created {
				create("step_created")
			}
			result := map[string]any{"type": "step_completed", "correlationId": id, "payload": c["output"]}
			if c["error"] != nil {
				result["type"], result["payload"] = "step_failed", c["error"]
			}
			data := map[string]any{"seen": c["seen"], "startedAt": c["startedAt"], "endedAt": c["endedAt"]}
			if c["retryAfter"] != nil {
				d, _ := time.ParseDuration(c["retryAfter"].(string))
				ended, _ := time.Parse(time.RFC3339Nano, c["endedAt"].(string))
				result["type"], data = "step_retrying", map[string]any{"retryAfter": ended.Add(d)}
			}
			result["data"] = data
			f.append(result)
		case "wait":
			create("wait_created")
		case "openHook":
			create("hook_created")
		}
	}
}

// called is the answer to a call.
type called struct {
	status   int
	body     string
	Commands []map[string]any
	Open     []string
	Await    *struct {
		Any []string
		All [][]string
	}
	Keep  *keepHint
	Error struct{ Message, Code string }
}

// types returns the types and IDs of the answer's commands.
func (c called) types() string {
	var all []string
	for _, command := range c.Commands {
		id, _ := command["id"].(string)
		all = append(all, strings.TrimSuffix(command["type"].(string)+" "+id, " "))
	}
	return strings.Join(all, ", ")
}

// call calls the app with the whole log, and changes of the call.
func (f *fake) call(ctx context.Context, changes map[string]any) called {
	f.t.Helper()
	f.mu.Lock()
	c := map[string]any{
		"type": "workflow", "invocation": "rh_1", "attempt": f.attempt, "token": "swct_1",
		"server": map[string]any{"contract": 2, "features": f.features},
		"run":    map[string]any{"id": "wrun_1", "workflow": "test", "deployment": "test@1", "input": "in"},
		"events": f.log,
	}
	for name, value := range changes {
		c[name] = value
	}
	body, err := json.Marshal(c)
	f.mu.Unlock()
	if err != nil {
		f.t.Fatal(err)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body)))
	got := called{status: w.Code, body: w.Body.String()}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			f.t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
	}
	return got
}

// invoke calls the app and carries out what it answers.
func (f *fake) invoke(changes map[string]any) called {
	f.t.Helper()
	got := f.call(f.t.Context(), changes)
	if got.status != http.StatusOK {
		f.t.Fatalf("the call was answered %d %s", got.status, got.body)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apply(strings.NewReader(got.body))
	return got
}

// events returns the log after a position.
func (f *fake) events(after int64) []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log[after:]
}

// waited reports whether a copy of a call waits for the first one.
func (u *callsUnderWay) waited() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.by {
		if s.more > 0 {
			return true
		}
	}
	return false
}

// drop ends all executions.
func (k *keptRuns) drop() {
	k.mu.Lock()
	var all []*keptRun
	for e := k.order.Back(); e != nil; e = k.order.Back() {
		all = append(all, k.remove(e))
	}
	if k.sweep != nil {
		k.sweep.Stop()
		k.sweep = nil
	}
	k.mu.Unlock()
	end(all)
}
