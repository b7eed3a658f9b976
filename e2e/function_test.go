package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// example is a plain function from the examples folder.
type example struct {
	name string
	// program builds it if necessary, and returns its command line.
	program func() ([]string, error)
	// inline is set if it executes the first attempt of a step within the call of the workflow.
	inline bool
}

var examples = []example{
	{"Python", func() ([]string, error) { return []string{"python3", "../examples/function-python/order.py"}, nil }, false},
	{"Go", goProgram("function-go"), false},
	{"sdk-go", goProgram("sdk-go"), true},
	{"sdk-python", func() ([]string, error) { return []string{"python3", "../examples/sdk-python/order.py"}, nil }, false},
}

// crashed are the examples for tests of crashes: one whose steps are calls of their own, and one whose steps are inline.
var crashed = examples[1:3]

// goProgram returns a function that builds an example once.
func goProgram(name string) func() ([]string, error) {
	return sync.OnceValues(func() ([]string, error) {
		path := filepath.Join(harness.WorkDir(), name)
		out, err := exec.Command("go", "build", "-C", "../examples/"+name, "-o", path, ".").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("build: %w\n%s", err, out)
		}
		return []string{path}, nil
	})
}

// function is the process of an example, behind a proxy that records its calls.
type function struct {
	*process
	*functionProxy
	deployment string
	inline     bool
	command    []string
	env        []string
	port       string
}

// newFunction starts an example and registers it with the server.
func newFunction(t *testing.T, s *server, e example, env ...string) *function {
	t.Helper()
	command, err := e.program()
	if err != nil {
		t.Fatal(err)
	}
	f := &function{
		deployment: e.name, inline: e.inline, command: command, env: append(env, "STEPWELL_URL="+s.url()), port: "0",
	}
	f.start(t)
	f.functionProxy = newFunctionProxy(t, "http://127.0.0.1:"+f.port)
	s.register(t, f.deployment, f.URL)
	return f
}

// start starts the process, on the same port as before if it is a restart.
func (f *function) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(f.command[0], f.command[1:]...)
	cmd.Env = append(cleanEnv("PORT="+f.port), f.env...)
	f.process, f.port = harness.Start(t, f.deployment, cmd, harness.AppReady)
	t.Cleanup(f.Kill) // it needs no graceful shutdown
}

// order starts a run of the order workflow.
func (f *function) order(t *testing.T, s *server, input map[string]any) (runID string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"workflow": "order", "deployment": f.deployment, "input": input})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, http.MethodPost, s.url()+"/v1/runs", body).Want(t, http.StatusCreated)
	return decode[struct{ ID string }](t, r).ID
}

// threads returns the threads of a log. A step whose only attempt was made inline never starts at the server.
func (f *function) threads(remote ...string) []string {
	if !f.inline {
		return remote
	}
	threads := slices.Clone(remote)
	for i, thread := range threads {
		if !strings.HasPrefix(thread, "run:") && !strings.Contains(thread, "retrying") {
			threads[i] = strings.Replace(thread, " started", "", 1)
		}
	}
	return threads
}

// decide approves or rejects an order, once the run waits for the approval.
func (s *server) decide(t *testing.T, order string, approved bool) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"payload": map[string]any{"approved": approved}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the approval is accepted", func() bool {
		return request(t, http.MethodPost, s.url()+"/v1/hooks/approve-"+order+"/resume", body).Status/100 == 2
	})
}

// wantOutput waits until a run has ended, and checks that it completed with the output.
func (s *server) wantOutput(t *testing.T, runID string, want map[string]any) {
	t.Helper()
	var run struct {
		Status string
		Output map[string]any
	}
	eventually(t, "the run ends", func() bool {
		r := request(t, http.MethodGet, s.url()+"/v1/runs/"+runID+"/wait?timeout=5s", nil)
		if r.Status != http.StatusOK {
			return false // the server may be down
		}
		run.Status = ""
		err := json.Unmarshal(r.Body, &run)
		return err == nil && run.Status != "pending" && run.Status != "running"
	})
	if diff := cmp.Diff(want, run.Output); run.Status != "completed" || diff != "" {
		t.Errorf("run %s is %s (-want +got):\n%s", runID, run.Status, diff)
	}
}

// wantOnce checks that nothing in the run's log completed twice, and that rows and log agree.
func (s *server) wantOnce(t *testing.T, runID string) {
	t.Helper()
	l := s.log(t, runID)
	for _, typ := range []string{"step_completed", "wait_completed", "hook_received", "run_completed"} {
		seen := map[string]bool{}
		for _, e := range l.of(typ) {
			if seen[e.CorrelationID] {
				t.Errorf("log of %s has %s of %q twice", runID, typ, e.CorrelationID)
			}
			seen[e.CorrelationID] = true
		}
	}
	s.verify(t)
}

// verify runs stepwell verify, which compares all rows with the logs.
func (s *server) verify(t *testing.T) {
	t.Helper()
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "verify")
	cmd.Env = cleanEnv("DATABASE_URL=" + s.dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("stepwell verify: %v\n%s", err, out)
	}
}

// shipped and rejected return the output of an order.
func shipped(runID string) map[string]any {
	return map[string]any{
		"status": "shipped", "parcel": "a parcel with one teapot",
		"payment": map[string]any{"charged": 25.0, "key": runID + "/charge"},
	}
}

func rejected(reason string) map[string]any {
	return map[string]any{"status": "rejected", "reason": reason}
}

// teapot returns the input of an order for one teapot.
func teapot(id string) map[string]any {
	return map[string]any{"id": id, "item": "teapot", "amount": 25}
}
