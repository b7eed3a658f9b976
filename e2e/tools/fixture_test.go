package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const (
	apiKey     = "sk_tools"
	deployment = "tools"
	// hookToken is of the hook that a run of the scene waits for.
	hookToken = "scene"
	// sleepTime is for how long a run of the scene sleeps: nobody waits for that.
	sleepTime = time.Hour
)

// line is one of the SDK's, with an app that is on it. The app's packages are the tools, too.
type line struct {
	name string
	// spec is the version that the line writes runs in, and what tells which tool can do what.
	spec int
	*harness.Folder
}

var lines = []line{
	{"stable", 3, harness.AppFolder("../app")},
	{"beta35", 5, harness.AppFolder("../beta35")},
	{"beta55", 7, harness.AppFolder("../beta55")},
}

// scene is a server and an app of a line, with a run of each kind. Nothing else happens there.
type scene struct {
	line
	node   node
	server string // base URL
	app    string // base URL
	runs   []run  // in the order in which they were started
}

// run is a run of the scene.
type run struct {
	Workflow, Status string
	ID               string
}

func newScene(t *testing.T, l line) *scene {
	t.Helper()
	s := &scene{line: l, node: newNode(t)}
	ready(t, l.Folder)
	s.server = startServer(t)
	s.app = s.startApp(t)
	s.register(t)
	for _, r := range []struct {
		workflow, status, last string
		args                   []any
	}{
		{"sequential", "completed", "run_completed", []any{1}},
		{"fatal", "failed", "run_failed", nil},
		{"stream", "completed", "run_completed", []any{3, 1}},
		{"sleepLong", "running", "wait_created", []any{sleepTime.Milliseconds()}},
		{"hookHold", "running", "hook_created", []any{hookToken}},
		{"attributes", "completed", "run_completed", nil},
	} {
		if r.workflow == "attributes" && !l.hasAttributes() {
			continue
		}
		id := s.start(t, r.workflow, r.args...)
		s.waitFor(t, id, r.last)
		s.runs = append(s.runs, run{r.workflow, r.status, id})
	}
	return s
}

// hasAttributes reports whether runs of the line have attributes, which its tools then show.
func (l line) hasAttributes() bool { return l.spec >= 5 }

// attributes are those that the scene's run of that name is given at its start, sets and does not delete.
var attributes = map[string]string{"customer": "c_1", "phase": "ended", "by-step": "set"}

// startServer starts a server on a database of its own.
func startServer(t *testing.T) string {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve")
	cmd.Env = cleanEnv("DATABASE_URL="+testdb.New(t), "STEPWELL_LISTEN=127.0.0.1:0", "STEPWELL_API_KEY="+apiKey,
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_LOG=json")
	_, addr := harness.Start(t, "server", cmd, harness.ServerReady)
	return "http://" + addr
}

// env is what an app and a tool need to find the server: the same for both.
func (s *scene) env() []string {
	return s.node.env("STEPWELL_URL="+s.server, "STEPWELL_API_KEY="+apiKey, "STEPWELL_DEPLOYMENT_ID="+deployment,
		"WORKFLOW_TARGET_WORLD=@stepwell/world")
}

func (s *scene) startApp(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(s.node.program, "server.mjs")
	cmd.Dir, cmd.Env = s.Path, append(s.env(), "PORT=0")
	_, port := harness.Start(t, "app", cmd, harness.AppReady)
	return "http://127.0.0.1:" + port
}

// register tells the server where the app is.
func (s *scene) register(t *testing.T) {
	t.Helper()
	call[any](t, http.MethodPut, s.server+"/v1/deployments/"+deployment, map[string]string{"url": s.app})
}

// start starts a run and returns its ID. That of attributes begins with two.
func (s *scene) start(t *testing.T, workflow string, args ...any) string {
	t.Helper()
	body := map[string]any{"workflow": workflow, "args": append([]any{}, args...)}
	if workflow == "attributes" {
		body["options"] = map[string]any{"attributes": map[string]string{"customer": "c_1", "phase": "new"}}
	}
	return call[struct{ RunID string }](t, http.MethodPost, s.app+"/start", body).RunID
}

// event is an event of a log as /v1 tells it.
type event struct {
	ID, Type      string
	CorrelationID string
	Data          struct {
		StepName string
		ResumeAt time.Time
	}
}

// log is what happened to a run, by /v1: another road than that which tools take.
func (s *scene) log(t *testing.T, runID string) []event {
	t.Helper()
	return call[struct{ Data []event }](t, http.MethodGet, s.server+"/v1/runs/"+runID+"/events", nil).Data
}

// waitFor waits until an event of the type has happened to a run, and returns it.
func (s *scene) waitFor(t *testing.T, runID, typ string) (found event) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s of %s", typ, runID), func() bool {
		for _, e := range s.log(t, runID) {
			if e.Type == typ {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// count is how many events of the type a run has.
func (s *scene) count(t *testing.T, runID, typ string) (n int) {
	t.Helper()
	for _, e := range s.log(t, runID) {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// run is the scene's one run of a workflow.
func (s *scene) run(t *testing.T, workflow string) run {
	t.Helper()
	for _, r := range s.runs {
		if r.Workflow == workflow {
			return r
		}
	}
	t.Fatalf("the scene has no run of %s", workflow)
	return run{}
}

// short is the name by which programmers know a workflow or a step: the SDK's begins with where it is.
func short(name string) string { return name[strings.LastIndex(name, "/")+1:] }

var client = &http.Client{Timeout: patience}

// call sends JSON with our key, and reads the JSON that comes back with a 200.
func call[T any](t *testing.T, method, url string, body any) (v T) {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(exchange(t, method, url, "application/json", encoded), &v); err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return v
}

// exchange sends a body with our key, and returns the one that comes back with a 200.
func exchange(t *testing.T, method, url, contentType string, body []byte) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s answered %d %.2000s", method, url, resp.StatusCode, answer)
	}
	return answer
}
