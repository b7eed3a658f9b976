package tools

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// dashboard is the dashboard of an SDK line, started by its command line.
type dashboard struct {
	*fixture
	url string

	mu     sync.Mutex
	called map[string]bool // methods
}

var dashboardReady = regexp.MustCompile(`Web UI server started on port (\d+)`)

func newDashboard(t *testing.T, s *fixture) *dashboard {
	t.Helper()
	cmd := exec.Command(s.node.program, s.workflow("web", "--noBrowser", "--webPort", strconv.Itoa(harness.FreePort(t)))...)
	cmd.Dir = s.Path
	cmd.Env = append(s.env(), "WORKFLOW_MANIFEST_PATH="+filepath.Join(".well-known", "workflow", "v1", "manifest.json"))
	_, port := harness.Start(t, "dashboard", cmd, dashboardReady)
	return &dashboard{fixture: s, url: "http://localhost:" + port, called: map[string]bool{}}
}

// rpc calls a method of the dashboard's server, like its pages.
func rpc[T any](t *testing.T, d *dashboard, method string, params map[string]any) T {
	t.Helper()
	d.markCalled(method)
	body, err := cbor.Marshal(map[string]any{"method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	answer := exchange(t, http.MethodPost, d.url+"/api/rpc", "application/cbor", body)
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

func (d *dashboard) markCalled(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called[method] = true
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

// wantAllCalled checks that tests have called every method.
func (d *dashboard) wantAllCalled(t *testing.T) {
	t.Helper()
	methods := d.methods(t)
	if len(methods) < 15 {
		t.Fatalf("found only these methods: %v", methods)
	}
	for _, method := range methods {
		if !d.called[method] {
			t.Errorf("no test has called %s", method)
		}
	}
}

// shownRun is a run in the dashboard's API. Payloads are as the app wrote them.
type shownRun struct {
	RunID        string            `cbor:"runId"`
	WorkflowName string            `cbor:"workflowName"`
	Status       string            `cbor:"status"`
	Output       []byte            `cbor:"output"`
	Attributes   map[string]string `cbor:"attributes"`
}

// shown is a page of a list.
type shown[T any] struct {
	Data    []T     `cbor:"data"`
	Cursor  *string `cbor:"cursor"`
	HasMore bool    `cbor:"hasMore"`
}

func shownRuns(list []shownRun) (runs []run) {
	for _, r := range list {
		runs = append(runs, run{short(r.WorkflowName), r.Status, r.RunID})
	}
	return runs
}

func dashboardRuns(t *testing.T, d *dashboard) {
	var got []run
	params := map[string]any{"limit": 2}
	for {
		p := rpc[shown[shownRun]](t, d, "fetchRuns", map[string]any{"params": params})
		got = append(got, shownRuns(p.Data)...)
		if !p.HasMore || len(got) > len(d.runs) {
			break
		}
		params["cursor"] = p.Cursor
	}
	if diff := cmp.Diff(d.newestFirst(), got); diff != "" {
		t.Errorf("fetchRuns, page by page (-want +got):\n%s", diff)
	}
	failed := rpc[shown[shownRun]](t, d, "fetchRuns", map[string]any{"params": map[string]any{"status": "failed"}})
	if diff := cmp.Diff([]run{d.run(t, "fatal")}, shownRuns(failed.Data)); diff != "" {
		t.Errorf("fetchRuns of status failed (-want +got):\n%s", diff)
	}
	newest := rpc[shown[shownRun]](t, d, "fetchRuns", map[string]any{"params": map[string]any{"limit": 1}}).Data[0]
	if diff := cmp.Diff(attributes, newest.Attributes); d.hasAttributes() && diff != "" {
		t.Errorf("attributes of the newest run (-want +got):\n%s", diff)
	}
	named := rpc[shown[shownRun]](t, d, "fetchRuns",
		map[string]any{"params": map[string]any{"workflowName": failed.Data[0].WorkflowName}})
	if diff := cmp.Diff([]run{d.run(t, "fatal")}, shownRuns(named.Data)); diff != "" {
		t.Errorf("fetchRuns by name (-want +got):\n%s", diff)
	}
}

func dashboardRun(t *testing.T, d *dashboard) {
	id := d.run(t, "sequential").ID
	got := rpc[shownRun](t, d, "fetchRun", map[string]any{"runId": id, "resolveData": "all"})
	if got.RunID != id || got.Status != "completed" || !bytes.Contains(got.Output, []byte("4")) {
		t.Errorf("fetchRun: %+v", got)
	}
	if d.hasAttributes() {
		got := rpc[shownRun](t, d, "fetchRun", map[string]any{"runId": d.run(t, "attributes").ID})
		if diff := cmp.Diff(attributes, got.Attributes); diff != "" {
			t.Errorf("attributes of fetchRun (-want +got):\n%s", diff)
		}
	}
	// The app does not encrypt, so there is no key.
	if key := rpc[any](t, d, "getEncryptionKeyForRun", map[string]any{"runId": id}); key != nil {
		t.Errorf("getEncryptionKeyForRun: %v", key)
	}
}

// shownStep is a step in the dashboard's API.
type shownStep struct {
	StepID   string `cbor:"stepId"`
	StepName string `cbor:"stepName"`
	Status   string `cbor:"status"`
	Output   []byte `cbor:"output"`
}

func dashboardSteps(t *testing.T, d *dashboard) {
	id := d.run(t, "sequential").ID
	var want []shownStep
	for _, e := range d.log(t, id) {
		if e.Type == "step_created" {
			want = append(want, shownStep{StepID: e.CorrelationID, StepName: e.Data.StepName, Status: "completed"})
		}
	}
	if d.has(t, "fetchSteps") {
		got := rpc[shown[shownStep]](t, d, "fetchSteps", map[string]any{"runId": id}).Data
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fetchSteps (-want +got):\n%s", diff)
		}
	}
	last := want[len(want)-1]
	got := rpc[shownStep](t, d, "fetchStep", map[string]any{"runId": id, "stepId": last.StepID, "resolveData": "all"})
	if got.StepID != last.StepID || got.Status != "completed" || !bytes.Contains(got.Output, []byte("4")) {
		t.Errorf("fetchStep: %+v", got)
	}
}

func dashboardEvents(t *testing.T, d *dashboard) {
	id := d.run(t, "sequential").ID
	want := d.events(t, id)
	for _, withData := range []bool{false, true} {
		params := map[string]any{"runId": id, "params": map[string]any{"withData": withData}}
		if diff := cmp.Diff(want, rpc[shown[listedEvent]](t, d, "fetchEvents", params).Data); diff != "" {
			t.Errorf("fetchEvents, with data: %v (-want +got):\n%s", withData, diff)
		}
	}
	step := want[2].CorrelationID
	ofStep := slices.DeleteFunc(slices.Clone(want), func(e listedEvent) bool { return e.CorrelationID != step })
	params := map[string]any{"correlationId": step, "params": map[string]any{"runId": id}}
	if diff := cmp.Diff(ofStep, rpc[shown[listedEvent]](t, d, "fetchEventsByCorrelationId", params).Data); diff != "" {
		t.Errorf("fetchEventsByCorrelationId (-want +got):\n%s", diff)
	}
	last := want[len(want)-1]
	got := rpc[struct {
		EventID   string `cbor:"eventId"`
		EventData struct {
			Output []byte `cbor:"output"`
		} `cbor:"eventData"`
	}](t, d, "fetchEvent", map[string]any{"runId": id, "eventId": last.EventID, "resolveData": "all"})
	if got.EventID != last.EventID || !bytes.Contains(got.EventData.Output, []byte("4")) {
		t.Errorf("fetchEvent: %+v", got)
	}
}

func dashboardHooks(t *testing.T, d *dashboard) {
	type hook struct {
		RunID  string `cbor:"runId"`
		HookID string `cbor:"hookId"`
	}
	id := d.run(t, "hookHold").ID
	want := hook{id, d.waitFor(t, id, "hook_created").CorrelationID}
	for _, params := range []map[string]any{{}, {"runId": id}} {
		got := rpc[shown[hook]](t, d, "fetchHooks", map[string]any{"params": params}).Data
		if diff := cmp.Diff([]hook{want}, got); diff != "" {
			t.Errorf("fetchHooks(%v) (-want +got):\n%s", params, diff)
		}
	}
	type token struct {
		Token string `cbor:"token"`
	}
	reading := []string{"fetchHook"}
	if d.has(t, "fetchHookToken") {
		reading = append(reading, "fetchHookToken")
	}
	for _, method := range reading {
		got := rpc[token](t, d, method, map[string]any{"runId": id, "hookId": want.HookID})
		if got.Token != hookToken {
			t.Errorf("%s: %+v", method, got)
		}
	}
}

func dashboardStreams(t *testing.T, d *dashboard) {
	id := d.run(t, "stream").ID
	names := rpc[[]string](t, d, "fetchStreams", map[string]any{"runId": id})
	if len(names) != 1 {
		t.Fatalf("fetchStreams: %v", names)
	}
	content := exchange(t, http.MethodGet, d.url+"/api/stream/"+url.PathEscape(names[0])+"?runId="+id, "", nil)
	if n := bytes.Count(content, []byte("chunk")); n != 3 {
		t.Errorf("the stream has %d chunks: %q", n, content)
	}
}

// dashboardHealth checks the methods that do not need a run.
func dashboardHealth(t *testing.T, d *dashboard) {
	health := rpc[struct {
		Healthy bool `cbor:"healthy"`
	}](t, d, "runHealthCheck", map[string]any{"endpoint": "workflow", "options": map[string]any{"timeout": 30_000}})
	if !health.Healthy {
		t.Error("runHealthCheck: the app is not healthy")
	}
	manifest := rpc[struct {
		Workflows map[string]map[string]any `cbor:"workflows"`
	}](t, d, "fetchWorkflowsManifest", nil)
	if _, ok := manifest.Workflows["workflows/e2e.ts"]["sequential"]; !ok {
		t.Errorf("fetchWorkflowsManifest: %v", manifest)
	}
	d.markCalled("getPublicServerConfig")
	config := string(exchange(t, http.MethodGet, d.url+"/api/rpc?method=getPublicServerConfig", "", nil))
	if !strings.Contains(config, "@stepwell/world") {
		t.Errorf("getPublicServerConfig: %s", config)
	}
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
