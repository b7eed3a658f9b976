package tools

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const (
	apiKey     = "sk_tools_0123456789abcdef"
	deployment = "tools"
	// hookToken is the token of the hook that one of the fixture's runs waits for.
	hookToken = "fixture"
	// sleepTime is the sleep of one of the fixture's runs. It outlasts the tests.
	sleepTime = time.Hour
)

// sdkLine is a release line of the SDK, with its app. The app's packages include the tools.
type sdkLine struct {
	name string
	// spec is the spec version of the line's runs. It also determines the features of the tools.
	spec int
	*harness.Folder
}

var sdkLines = []sdkLine{
	{"stable", 3, harness.AppFolder("../app")},
	{"beta35", 5, harness.AppFolder("../beta35")},
	{"beta55", 7, harness.AppFolder("../beta55")},
}

// testedLines returns all lines in a long test, else the newest; or the version that is given instead.
func testedLines() []sdkLine {
	if l, ok := harness.GivenLine(); ok {
		return []sdkLine{{l.Name, l.Spec, harness.AppFolder("../" + l.Dir)}}
	}
	if harness.IsLong() {
		return sdkLines
	}
	return sdkLines[len(sdkLines)-1:]
}

// fixture is a server and an app of an SDK line, with one run of each kind.
type fixture struct {
	sdkLine
	node   node
	server string // base URL
	app    string // base URL
	runs   []run  // in the order of their starts
}

// run is a run of the fixture.
type run struct {
	Workflow, Status string
	ID               string
}

func newFixture(t *testing.T, l sdkLine) *fixture {
	t.Helper()
	s := &fixture{sdkLine: l, node: newNode(t)}
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

// hasAttributes reports whether the SDK line supports attributes.
func (l sdkLine) hasAttributes() bool { return l.spec >= 5 }

// attributes are the final attributes of the fixture's run of workflow "attributes".
var attributes = map[string]string{"customer": "c_1", "phase": "ended", "by-step": "set"}

// startServer starts a server on a new database.
func startServer(t *testing.T) string {
	t.Helper()
	_, url := harness.StartFastServer(t, testdb.New(t), apiKey)
	return url
}

// env returns the settings that apps and tools need to find the server.
func (s *fixture) env() []string {
	return s.node.env("STEPWELL_URL="+s.server, "STEPWELL_API_KEY="+apiKey, "STEPWELL_DEPLOYMENT_ID="+deployment,
		"WORKFLOW_TARGET_WORLD=@stepwell/world")
}

func (s *fixture) startApp(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(s.node.program, "server.mjs")
	cmd.Dir, cmd.Env = s.Path, append(s.env(), "PORT=0")
	_, port := harness.Start(t, "app", cmd, harness.AppReady)
	return "http://127.0.0.1:" + port
}

// register sets the URL of the app's deployment.
func (s *fixture) register(t *testing.T) {
	t.Helper()
	call[any](t, http.MethodPut, s.server+"/v1/deployments/"+deployment, map[string]string{"url": s.app})
}

// start starts a run and returns its ID. Runs of workflow "attributes" start with two attributes.
func (s *fixture) start(t *testing.T, workflow string, args ...any) string {
	t.Helper()
	body := map[string]any{"workflow": workflow, "args": append([]any{}, args...)}
	if workflow == "attributes" {
		body["options"] = map[string]any{"attributes": map[string]string{"customer": "c_1", "phase": "new"}}
	}
	return call[struct{ RunID string }](t, http.MethodPost, s.app+"/start", body).RunID
}

// event is an event in the /v1 API.
type event struct {
	ID, Type      string
	CorrelationID string
	Data          struct {
		StepName string
		ResumeAt time.Time
	}
}

// log returns the log of a run from the /v1 API, which the tools do not use.
func (s *fixture) log(t *testing.T, runID string) []event {
	t.Helper()
	return call[struct{ Data []event }](t, http.MethodGet, s.server+"/v1/runs/"+runID+"/events", nil).Data
}

// waitFor waits until the run has an event of the type, and returns it.
func (s *fixture) waitFor(t *testing.T, runID, typ string) (found event) {
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

// count returns the number of the run's events of the type.
func (s *fixture) count(t *testing.T, runID, typ string) (n int) {
	t.Helper()
	for _, e := range s.log(t, runID) {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// run returns the fixture's run of the workflow.
func (s *fixture) run(t *testing.T, workflow string) run {
	t.Helper()
	for _, r := range s.runs {
		if r.Workflow == workflow {
			return r
		}
	}
	t.Fatalf("the fixture has no run of %s", workflow)
	return run{}
}

// short returns the function's name in the SDK's name of a workflow or step, which begins with a path.
func short(name string) string { return name[strings.LastIndex(name, "/")+1:] }

var client = &http.Client{Timeout: timeout}

// call sends a JSON request, expects 200, and decodes the JSON answer.
func call[T any](t *testing.T, method, url string, body any) T {
	t.Helper()
	return harness.Decode[T](t, harness.Send(t.Context(), client, method, url, apiKey, body).Want(t, http.StatusOK))
}
