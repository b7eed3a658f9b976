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

// appOptions configures an app.
type appOptions struct {
	line       *sdkLine
	stepwell   string // the base URL of the server or of a proxy before it
	deployment string
	// client is the client that @stepwell/world uses; see [harness.Client] for the default.
	client string
	// preload installs the World with NODE_OPTIONS instead of WORKFLOW_TARGET_WORLD.
	preload bool
	env     []string
}

// app is an app process that can be restarted on the same port.
type app struct {
	*process
	*sdkLine
	options appOptions
	port    string
	tap     *tap   // records the app's requests, if the test needs them
	effects string // the file in which the app records the execution of steps
}

func newApp(t *testing.T, options appOptions) *app {
	t.Helper()
	a := &app{sdkLine: options.line, options: options, port: "0", effects: filepath.Join(t.TempDir(), "effects.jsonl")}
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
	if a.options.client != "" {
		install = append(install, "STEPWELL_CLIENT="+a.options.client)
	}
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = a.dir
	cmd.Env = append(cleanEnv("PORT="+a.port, "STEPWELL_URL="+a.options.stepwell,
		"STEPWELL_DEPLOYMENT_ID="+a.options.deployment, "STEPWELL_API_KEY="+apiKey, "EFFECTS_FILE="+a.effects,
		"STEPWELL_PULL=0"),
		append(install, a.options.env...)...)
	a.process, a.port = startProcess(t, "app "+a.options.deployment, cmd, harness.AppReady)
}

func (a *app) url() string { return "http://127.0.0.1:" + a.port }

// run starts a workflow and returns the ID of the run.
func (a *app) run(t *testing.T, workflow string, args ...any) string {
	t.Helper()
	return a.runWith(t, nil, workflow, args...)
}

// runWith is run with options for the SDK's start function.
func (a *app) runWith(t *testing.T, options map[string]any, workflow string, args ...any) string {
	t.Helper()
	started := a.post(t, "/start", map[string]any{
		"workflow": workflow, "args": append([]any{}, args...), "options": options,
	})
	return decode[struct{ RunID string }](t, started.Want(t, http.StatusOK)).RunID
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

// world calls a method of the app's World, as user code can.
func (a *app) world(t *testing.T, object, method string, args ...any) response {
	t.Helper()
	return a.post(t, "/world", map[string]any{"object": object, "method": method, "args": args})
}

// outcome is the result of a run as the SDK returns it.
type outcome struct {
	Status string
	Value  any
	Error  *failure
}

type failure struct{ Name, Message, Code string }

// outcome waits until a run has ended. It retries errors, because tests restart servers in the meantime.
func (a *app) outcome(t *testing.T, runID string) (o outcome) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		r := request(t, http.MethodGet, a.url()+"/runs/"+runID+"/result?timeoutMs=10000", nil)
		err := r.Problem(http.StatusOK)
		if err == nil {
			if o = decode[outcome](t, r); o.Status != "pending" {
				return o
			}
		}
		select {
		case <-deadline:
			t.Fatalf("run %s did not end within %s: %v", runID, timeout, err)
		case <-time.After(pollInterval):
		}
	}
}

// want waits until a run has ended, and checks that it completed with the value.
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

// counts returns how often each step of the run was executed, as recorded by the app itself.
func (a *app) counts(t *testing.T, runID string) map[string]int {
	t.Helper()
	r := request(t, http.MethodGet, a.url()+"/effects?key="+runID, nil).Want(t, http.StatusOK)
	return decode[struct{ Counts map[string]int }](t, r).Counts
}

func (a *app) wantCounts(t *testing.T, runID string, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, a.counts(t, runID)); diff != "" {
		t.Errorf("executed steps of %s (-want +got):\n%s", runID, diff)
	}
}

// appHook is an open hook in the app's list.
type appHook struct {
	Token     string
	HookID    string
	IsWebhook bool
}

// hook waits until the run has one open hook, and returns it.
func (a *app) hook(t *testing.T, runID string) (h appHook) {
	t.Helper()
	eventually(t, "run "+runID+" has a hook", func() bool {
		r := request(t, http.MethodGet, a.url()+"/runs/"+runID+"/hooks", nil)
		if r.Problem(http.StatusOK) != nil {
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

// resume sends a payload to an open hook.
func (a *app) resume(t *testing.T, token string, payload any) {
	t.Helper()
	a.tryResume(t, token, payload).Want(t, http.StatusOK)
}

func (a *app) tryResume(t *testing.T, token string, payload any) response {
	t.Helper()
	return a.post(t, "/hooks/resume", map[string]any{"token": token, "payload": payload})
}

// callWebhook sends a request to the app's public URL of a webhook.
func (a *app) callWebhook(t *testing.T, token, body string) response {
	t.Helper()
	return request(t, http.MethodPost, a.url()+"/.well-known/workflow/v1/webhook/"+url.PathEscape(token), []byte(body))
}
