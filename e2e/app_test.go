package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// appOptions says how to start an app.
type appOptions struct {
	line       *line
	stepwell   string // the server's base URL, as the app sees it
	deployment string
	// preload installs the World by NODE_OPTIONS, else it is named by WORKFLOW_TARGET_WORLD.
	preload bool
	env     []string
}

// app is an app that can be stopped and started again, at the same port.
type app struct {
	*process
	*line
	options appOptions
	port    string
	tap     *tap   // what it says to the server, where a test listens
	effects string // the file that records what its steps do
}

func newApp(t *testing.T, options appOptions) *app {
	t.Helper()
	a := &app{line: options.line, options: options, port: "0", effects: filepath.Join(t.TempDir(), "effects.jsonl")}
	a.start(t)
	return a
}

func (a *app) start(t *testing.T) {
	t.Helper()
	if err := a.folder.Ready(); err != nil {
		t.Fatal(err)
	}
	install := []string{"WORKFLOW_TARGET_WORLD=@stepwell/world"}
	if a.options.preload {
		install = []string{"NODE_OPTIONS=--import @stepwell/world/preload"}
		if a.otherBuild != "" {
			install = append(install, "BUILD_DIR="+a.otherBuild)
		}
	}
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = a.dir
	cmd.Env = append(cleanEnv("PORT="+a.port, "STEPWELL_URL="+a.options.stepwell,
		"STEPWELL_DEPLOYMENT_ID="+a.options.deployment, "STEPWELL_API_KEY="+apiKey, "EFFECTS_FILE="+a.effects),
		append(install, a.options.env...)...)
	a.process, a.port = startProcess(t, "app "+a.options.deployment, cmd, harness.AppReady)
}

func (a *app) url() string { return "http://127.0.0.1:" + a.port }

// run starts a workflow and returns the run's ID.
func (a *app) run(t *testing.T, workflow string, args ...any) string {
	t.Helper()
	return a.runWith(t, nil, workflow, args...)
}

// runWith starts a workflow with options of the SDK's start.
func (a *app) runWith(t *testing.T, options map[string]any, workflow string, args ...any) string {
	t.Helper()
	started := a.post(t, "/start", map[string]any{
		"workflow": workflow, "args": append([]any{}, args...), "options": options,
	})
	return decode[struct{ RunID string }](t, started.want(t, http.StatusOK)).RunID
}

// post sends JSON to the app.
func (a *app) post(t *testing.T, path string, body any) response {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return request(t, http.MethodPost, a.url()+path, encoded)
}

// world calls a method of the app's World, as a program of the user's would.
func (a *app) world(t *testing.T, object, method string, args ...any) response {
	t.Helper()
	return a.post(t, "/world", map[string]any{"object": object, "method": method, "args": args})
}

// outcome is how a run ended, as the SDK tells its caller.
type outcome struct {
	Status string
	Value  any
	Error  *failure
}

type failure struct{ Name, Message, Code string }

// outcome waits for a run's end. Errors on the way are no news where servers come and go.
func (a *app) outcome(t *testing.T, runID string) (o outcome) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r := request(t, http.MethodGet, a.url()+"/runs/"+runID+"/result?timeoutMs=10000", nil)
		err := r.problem(http.StatusOK)
		if err == nil {
			if o = decode[outcome](t, r); o.Status != "pending" {
				return o
			}
		}
		select {
		case <-deadline:
			t.Fatalf("run %s did not end within %s: %v", runID, patience, err)
		case <-time.After(pollTime):
		}
	}
}

// want waits for a run's end, which has to be that it returned the value.
func (a *app) want(t *testing.T, runID string, value any) {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	want := outcome{Status: "completed"}
	if err := json.Unmarshal(encoded, &want.Value); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, a.outcome(t, runID)); diff != "" {
		t.Fatalf("outcome of %s (-want +got):\n%s", runID, diff)
	}
}

// counts is how often the bodies of the run's steps really ran.
func (a *app) counts(t *testing.T, runID string) map[string]int {
	t.Helper()
	r := request(t, http.MethodGet, a.url()+"/effects?key="+runID, nil).want(t, http.StatusOK)
	return decode[struct{ Counts map[string]int }](t, r).Counts
}

func (a *app) wantCounts(t *testing.T, runID string, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, a.counts(t, runID)); diff != "" {
		t.Errorf("what steps of %s did (-want +got):\n%s", runID, diff)
	}
}

// appHook is an open hook as the app lists it.
type appHook struct {
	Token     string
	HookID    string
	IsWebhook bool
}

// hook waits until the run has an open hook.
func (a *app) hook(t *testing.T, runID string) (h appHook) {
	t.Helper()
	eventually(t, "run "+runID+" has a hook", func() bool {
		r := request(t, http.MethodGet, a.url()+"/runs/"+runID+"/hooks", nil)
		if r.problem(http.StatusOK) != nil {
			return false
		}
		list := decode[[]appHook](t, r)
		if len(list) == 1 {
			h = list[0]
		}
		return len(list) == 1
	})
	return h
}

// resume gives an open hook a payload.
func (a *app) resume(t *testing.T, token string, payload any) {
	t.Helper()
	a.tryResume(t, token, payload).want(t, http.StatusOK)
}

func (a *app) tryResume(t *testing.T, token string, payload any) response {
	t.Helper()
	return a.post(t, "/hooks/resume", map[string]any{"token": token, "payload": payload})
}

// callWebhook calls the app's public URL of a webhook.
func (a *app) callWebhook(t *testing.T, token, body string) response {
	t.Helper()
	return request(t, http.MethodPost, a.url()+"/.well-known/workflow/v1/webhook/"+url.PathEscape(token), []byte(body))
}
