package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// cli runs the SDK's command line with the folder and settings of the app, and returns its standard output.
func (s *fixture) cli(t *testing.T, args ...string) []byte {
	t.Helper()
	return s.cliIn(t, s.env(), args...)
}

func (s *fixture) cliIn(t *testing.T, env []string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.node.program, s.workflow(args...)...)
	cmd.Dir, cmd.Env = s.Path, env
	harness.DieWithParent(cmd)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("workflow %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// workflow returns the command for the SDK's command line.
func (sdkLine) workflow(args ...string) []string {
	return append([]string{filepath.Join("node_modules", ".bin", "workflow")}, args...)
}

// cliJSON runs the command line with --json and decodes its output.
func cliJSON[T any](t *testing.T, s *fixture, args ...string) (v T) {
	t.Helper()
	out := s.cli(t, append(args, "--json")...)
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("workflow %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

// listed is a run in the output of the command line. Not every list has every field.
type listed struct {
	RunID        string
	WorkflowName string
	Status       string
	Input        []any
	Output       any
	Error        struct{ Message string }
	Attributes   map[string]string
}

type page[T any] struct{ Data []T }

// runs converts a list to the fixture's type.
func runs(list []listed) (runs []run) {
	for _, r := range list {
		runs = append(runs, run{short(r.WorkflowName), r.Status, r.RunID})
	}
	return runs
}

// newestFirst returns the fixture's runs in the order of lists.
func (s *fixture) newestFirst() []run {
	list := slices.Clone(s.runs)
	slices.Reverse(list)
	return list
}

func cliRuns(t *testing.T, s *fixture) {
	list := cliJSON[page[listed]](t, s, "inspect", "runs").Data
	if diff := cmp.Diff(s.newestFirst(), runs(list)); diff != "" {
		t.Errorf("inspect runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(attributes, list[0].Attributes); s.hasAttributes() && diff != "" {
		t.Errorf("attributes of the newest run (-want +got):\n%s", diff)
	}
}

func cliRunsWithData(t *testing.T, s *fixture) {
	got := cliJSON[page[listed]](t, s, "inspect", "runs", "--withData", "--status", "completed", "--sort", "asc").Data
	if len(got) < 2 {
		t.Fatalf("inspect runs --status completed: %+v", got)
	}
	type data struct{ Input, Output any }
	want := []data{{[]any{1.}, 4.}, {[]any{3., 1.}, 3.}}
	if diff := cmp.Diff(want, []data{{got[0].Input, got[0].Output}, {got[1].Input, got[1].Output}}); diff != "" {
		t.Errorf("inspect runs --withData (-want +got):\n%s", diff)
	}
}

// cliTable checks the table that the command line prints without --json.
func cliTable(t *testing.T, s *fixture) {
	table := string(s.cli(t, "inspect", "runs"))
	for _, r := range s.runs {
		if !strings.Contains(table, r.Workflow) || !strings.Contains(table, r.ID[len(r.ID)-4:]) {
			t.Errorf("inspect runs does not list %+v:\n%s", r, table)
		}
	}
}

func cliRun(t *testing.T, s *fixture) {
	done := s.run(t, "sequential")
	got := cliJSON[listed](t, s, "inspect", "run", done.ID)
	if got.RunID != done.ID || got.Status != done.Status || got.Output != 4. || !cmp.Equal(got.Input, []any{1.}) {
		t.Errorf("inspect run %s: %+v", done.ID, got)
	}
	failed := s.run(t, "fatal")
	got = cliJSON[listed](t, s, "inspect", "run", failed.ID)
	if got.RunID != failed.ID || got.Status != failed.Status || !strings.Contains(got.Error.Message, "no use trying again") {
		t.Errorf("inspect run %s: %+v", failed.ID, got)
	}
}

// listedStep is a step in the output of the command line.
type listedStep struct {
	StepName, Status string
	Attempt          int
	Input            struct{ Args []any }
	Output           any
}

func cliSteps(t *testing.T, s *fixture) {
	id := s.run(t, "sequential").ID
	want := []listedStep{
		{StepName: "add", Status: "completed", Attempt: 1},
		{StepName: "add", Status: "completed", Attempt: 1},
		{StepName: "add", Status: "completed", Attempt: 1},
	}
	steps := func(more ...string) []listedStep {
		list := cliList[listedStep](t, s, append([]string{"inspect", "steps", "--runId", id, "--sort", "asc"}, more...)...)
		for i := range list {
			list[i].StepName = short(list[i].StepName)
		}
		return list
	}
	if diff := cmp.Diff(want, steps()); diff != "" {
		t.Errorf("inspect steps (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i].Input.Args, want[i].Output = []any{float64(i + 1), 1.}, float64(i+2)
	}
	if diff := cmp.Diff(want, steps("--withData")); diff != "" {
		t.Errorf("inspect steps --withData (-want +got):\n%s", diff)
	}
}

// cliList decodes a list, which is a plain array on some SDK lines and a page on others.
func cliList[T any](t *testing.T, s *fixture, args ...string) (list []T) {
	t.Helper()
	raw := cliJSON[json.RawMessage](t, s, args...)
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var p page[T]
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatalf("workflow %s: %v\n%s", strings.Join(args, " "), err, raw)
	}
	return p.Data
}

// listedEvent is an event in the output of the command line or the dashboard.
type listedEvent struct {
	EventID       string `json:"eventId" cbor:"eventId"`
	EventType     string `json:"eventType" cbor:"eventType"`
	CorrelationID string `json:"correlationId" cbor:"correlationId"`
	EventData     struct {
		Output any `json:"output" cbor:"-"`
	} `json:"eventData" cbor:"-"`
}

// events returns the log of a run as a list of the tools.
func (s *fixture) events(t *testing.T, runID string) (list []listedEvent) {
	t.Helper()
	for _, e := range s.log(t, runID) {
		list = append(list, listedEvent{EventID: e.ID, EventType: e.Type, CorrelationID: e.CorrelationID})
	}
	return list
}

func cliEvents(t *testing.T, s *fixture) {
	id := s.run(t, "sequential").ID
	want := s.events(t, id)
	args := []string{"inspect", "events", "--runId", id, "--sort", "asc"}
	if diff := cmp.Diff(want, cliList[listedEvent](t, s, args...)); diff != "" {
		t.Errorf("inspect events (-want +got):\n%s", diff)
	}
	want[len(want)-1].EventData.Output = 4.
	if diff := cmp.Diff(want, cliList[listedEvent](t, s, append(args, "--withData")...)); diff != "" {
		t.Errorf("inspect events --withData (-want +got):\n%s", diff)
	}
}

func cliHooks(t *testing.T, s *fixture) {
	type hook struct{ RunID, HookID string }
	waiting := s.run(t, "hookHold").ID
	want := []hook{{waiting, s.waitFor(t, waiting, "hook_created").CorrelationID}}
	if diff := cmp.Diff(want, cliJSON[page[hook]](t, s, "inspect", "hooks").Data); diff != "" {
		t.Errorf("inspect hooks (-want +got):\n%s", diff)
	}
	one := cliJSON[struct{ RunID, Token string }](t, s, "inspect", "hook", want[0].HookID)
	if one.RunID != waiting || one.Token != hookToken {
		t.Errorf("inspect hook %s: %+v", want[0].HookID, one)
	}
}

func cliStreams(t *testing.T, s *fixture) {
	type stream struct{ RunID, StreamID string }
	id := s.run(t, "stream").ID
	list := cliList[stream](t, s, "inspect", "streams", "--runId", id)
	if len(list) != 1 || list[0].RunID != id {
		t.Fatalf("inspect streams --runId %s: %+v", id, list)
	}
	got := string(s.cli(t, "inspect", "stream", list[0].StreamID, "--runId", id, "--json"))
	if want := "{\"chunk\":0}\n{\"chunk\":1}\n{\"chunk\":2}\n"; got != want {
		t.Errorf("inspect stream %s: got %q, want %q", list[0].StreamID, got, want)
	}
}

func cliSleeps(t *testing.T, s *fixture) {
	id := s.run(t, "sleepLong").ID
	list := cliList[struct{ ResumeAt time.Time }](t, s, "inspect", "sleeps", "--runId", id)
	if want := s.waitFor(t, id, "wait_created").Data.ResumeAt; len(list) != 1 || !list[0].ResumeAt.Equal(want) {
		t.Errorf("inspect sleeps --runId %s: %v, want one until %v", id, list, want)
	}
}

// cliAttributes lists the attribute keys, and the runs with a value.
func cliAttributes(t *testing.T, s *fixture) {
	if s.spec < 7 {
		t.Skip("this SDK line's command line has no attributes")
	}
	got := map[string]int{}
	for _, a := range cliList[struct {
		Key      string
		RunCount int
	}](t, s, "inspect", "attributes") {
		got[a.Key] = a.RunCount
	}
	if diff := cmp.Diff(map[string]int{"by-step": 1, "customer": 1, "phase": 1}, got); diff != "" {
		t.Errorf("inspect attributes (-want +got):\n%s", diff)
	}
	list := cliList[listed](t, s, "inspect", "runs", "--attribute", "phase=ended", "--since", "1h")
	if diff := cmp.Diff([]run{s.run(t, "attributes")}, runs(list)); diff != "" {
		t.Errorf("inspect runs --attribute (-want +got):\n%s", diff)
	}
	if list := cliList[listed](t, s, "inspect", "runs", "--attribute", "phase=new"); len(list) > 0 {
		t.Errorf("runs with a former value of an attribute: %+v", list)
	}
}

func cliHealth(t *testing.T, s *fixture) {
	got := cliJSON[struct{ AllHealthy bool }](t, s, "health")
	if !got.AllHealthy {
		t.Errorf("health: %+v", got)
	}
}

// cliWithoutPackage runs the command line without @stepwell/world, with only the SDK's settings for its own backend.
func cliWithoutPackage(t *testing.T, s *fixture) {
	out := s.cliIn(t, s.node.env("WORKFLOW_TARGET_WORLD=vercel", "WORKFLOW_VERCEL_BACKEND_URL="+s.server+"/sdk",
		"WORKFLOW_VERCEL_AUTH_TOKEN="+apiKey, "WORKFLOW_VERCEL_PROJECT=prj_stepwell", "WORKFLOW_VERCEL_TEAM=team_stepwell",
		"WORKFLOW_VERCEL_PROJECT_NAME=stepwell"), "inspect", "runs", "--json")
	var list page[listed]
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("inspect runs: %v\n%s", err, out)
	}
	if diff := cmp.Diff(s.newestFirst(), runs(list.Data)); diff != "" {
		t.Errorf("inspect runs (-want +got):\n%s", diff)
	}
}

// cliWrites starts a run and cancels runs. The last command cancels all running runs.
func cliWrites(t *testing.T, s *fixture) {
	started := cliJSON[listed](t, s, "start", "workflow//./workflows/e2e//sequential", "5").RunID
	s.waitFor(t, started, "run_completed")
	if got := cliJSON[listed](t, s, "inspect", "run", started); got.Output != 8. {
		t.Errorf("the started run: %+v", got)
	}

	one, other := s.run(t, "sleepLong").ID, s.run(t, "hookHold").ID
	s.cli(t, "cancel", one)
	s.waitFor(t, one, "run_cancelled")
	if n := s.count(t, other, "run_cancelled"); n != 0 {
		t.Error("cancelling one run cancelled another")
	}
	s.cli(t, "cancel", "--status", "running", "-y")
	s.waitFor(t, other, "run_cancelled")
	for _, r := range s.runs {
		if n := s.count(t, r.ID, "run_cancelled"); r.Status != "running" && n != 0 || n > 1 {
			t.Errorf("after both cancels, %+v was cancelled %d times", r, n)
		}
	}
}
