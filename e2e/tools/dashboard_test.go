package tools

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// dashboard is the dashboard of an SDK line, started by its command line.
type dashboard struct {
	*fixture
	url string
}

var dashboardReady = regexp.MustCompile(`Web UI server started on port (\d+)`)

func newDashboard(t *testing.T, s *fixture) *dashboard {
	t.Helper()
	cmd := exec.Command(s.node.program, s.workflow("web", "--noBrowser", "--webPort", strconv.Itoa(harness.FreePort(t)))...)
	cmd.Dir = s.Path
	cmd.Env = append(s.env(), "WORKFLOW_MANIFEST_PATH="+filepath.Join(".well-known", "workflow", "v1", "manifest.json"))
	_, port := harness.Start(t, "dashboard", cmd, dashboardReady)
	return &dashboard{fixture: s, url: "http://localhost:" + port}
}

// rpc calls a method of the dashboard's server, like its pages.
func rpc[T any](t *testing.T, d *dashboard, method string, params map[string]any) T {
	t.Helper()
	body, err := cbor.Marshal(map[string]any{"method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	answer := harness.Send(t.Context(), client, http.MethodPost, d.url+"/api/rpc", apiKey, body,
		"Content-Type", "application/cbor").Want(t, http.StatusOK).Body
	var got struct {
		Success bool `cbor:"success"`
		Data    T    `cbor:"data"`
	}
	if err := cbor.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%s: %v in %q", method, err, answer)
	}
	if !got.Success {
		t.Fatalf("%s(%v): %q", method, params, answer)
	}
	return got.Data
}

// methods returns the methods of the dashboard's server, parsed from its code.
func (d *dashboard) methods(t *testing.T) (names []string) {
	t.Helper()
	assets, err := filepath.Glob(filepath.Join(d.Path, "node_modules", "@workflow", "web", "build", "server", "assets", "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)\nconst handlers = \{\n(  fetchRuns: .*?)\n\};`)
	entry := regexp.MustCompile(`(?m)^  (\w+): \(`)
	for _, asset := range assets {
		code, err := os.ReadFile(asset)
		if err != nil {
			t.Fatal(err)
		}
		if found := table.FindSubmatch(code); found != nil {
			for _, match := range entry.FindAllSubmatch(found[1], -1) {
				names = append(names, string(match[1]))
			}
		}
	}
	return names
}

// has reports whether the dashboard has the method.
func (d *dashboard) has(t *testing.T, method string) bool {
	t.Helper()
	return slices.Contains(d.methods(t), method)
}

// shownRun is a run in the dashboard's API. Payloads are as the app wrote them.
type shownRun struct {
	Output []byte `cbor:"output"`
}

// dashboardWrites calls the methods behind the dashboard's buttons.
func dashboardWrites(t *testing.T, d *dashboard) {
	hold := func(name string) string {
		id := d.start(t, "hookHold", "dashboard-"+name)
		d.waitFor(t, id, "hook_created")
		return id
	}
	of := func(id string) map[string]any { return map[string]any{"runId": id} }

	id := hold("cancelled")
	rpc[any](t, d, "cancelRun", of(id))
	d.waitFor(t, id, "run_cancelled")

	if d.has(t, "bulkCancelRuns") {
		ids := []string{hold("one"), hold("another")}
		rpc[any](t, d, "bulkCancelRuns", map[string]any{"runIds": ids})
		d.waitFor(t, ids[0], "run_cancelled")
		d.waitFor(t, ids[1], "run_cancelled")
	}

	id = hold("resumed")
	rpc[any](t, d, "reenqueueRun", of(id)) // an additional delivery
	rpc[any](t, d, "resumeHook", map[string]any{"token": "dashboard-resumed", "payload": map[string]any{"by": "hand"}})
	d.waitFor(t, id, "run_completed")
	if got := rpc[shownRun](t, d, "fetchRun", of(id)); !bytes.Contains(got.Output, []byte("hand")) {
		t.Errorf("the resumed run: %q", got.Output)
	}

	id = d.start(t, "sleepLong", sleepTime.Milliseconds())
	d.waitFor(t, id, "wait_created")
	rpc[any](t, d, "wakeUpRun", of(id))
	d.waitFor(t, id, "run_completed")

	again := rpc[string](t, d, "recreateRun", of(d.run(t, "sequential").ID))
	d.waitFor(t, again, "run_completed")
	if got := rpc[shownRun](t, d, "fetchRun", of(again)); !bytes.Contains(got.Output, []byte("4")) {
		t.Errorf("the recreated run: %q", got.Output)
	}
}
