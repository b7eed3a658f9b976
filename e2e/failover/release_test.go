package failover

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// keepRelease has [TestRunsOfReleasesGoOn] write the dump of this release.
var keepRelease = flag.String("keep-release", "", "keep the database of this release, such as 0.1, for all later ones")

const releases = "testdata/releases"

// soon is after the dump of a database was made, for what then goes on by itself.
const soon = "30s"

// ofRelease are the runs in the database of a release, by workflow: what each was doing, what makes it go on in a later
// release, and how it ends there.
var ofRelease = []struct {
	workflow string
	until    string // the event, or the text in a step, that the release got to
	request  string // a path with which it goes on; empty if nothing is needed but time
	payload  any    // of the request
	status   string
	output   string
}{
	{"completes", "run_completed", "", nil, "completed", `"done"`},
	{"fails", "run_failed", "", nil, "failed", ``},
	{"cancels", "run_cancelled", "", nil, "cancelled", ``},
	{"sleeps", "wait_created", "", nil, "completed", `"awake"`},
	{"delays", "run_created", "", nil, "completed", `"done"`},
	{"retries", "step_retrying", "", nil, "completed", `"done"`},
	{"parent", "step_created", "", nil, "completed", `"child"`},
	{"stores", "store_set", "", nil, "completed", `"stored"`},
	{"asks", "hook_created", "/v1/hooks/token-of-asks/resume", map[string]any{"payload": 7}, "completed", `7`},
	{"listens", "hook_created", "/v1/signals/news", map[string]any{"data": 8}, "completed", ``},
	{"flows", "wait_created", "", nil, "completed", `{"last":"done"}`},
	{
		"approves", "hook_created", "/v1/runs/{id}/hooks/ask/resume",
		map[string]any{"payload": map[string]any{"decision": "approve", "as": "anna"}}, "completed", `"anna"`,
	},
}

// TestRunsOfReleasesGoOn: the database of each release is migrated, its logs are sound, and its runs end as they would
// have. A new release is kept by `go test ./e2e/failover -run TestRunsOfReleasesGoOn -keep-release 0.2`, by its own commit.
func TestRunsOfReleasesGoOn(t *testing.T) {
	t.Parallel()
	harness.SkipIfShort(t)
	if *keepRelease != "" {
		writeRelease(t, filepath.Join(releases, *keepRelease+".sql.gz"))
	}
	dumps, err := filepath.Glob(releases + "/*.sql.gz")
	if err != nil || len(dumps) == 0 {
		t.Fatalf("found no dump of a release (%v)", err)
	}
	for _, dump := range dumps {
		t.Run(filepath.Base(dump), func(t *testing.T) { goOn(t, dump) })
	}
}

// goOn restores the dump of a release, and has this program end its runs.
func goOn(t *testing.T, dump string) {
	dsn := testdb.Empty(t)
	restore(t, dsn, dump)
	s := startServer(t, dsn)
	s.serveRelease(2)
	for _, want := range ofRelease {
		run := s.runOf(want.workflow)
		if run.Status != "completed" && want.request != "" {
			s.must(http.MethodPost, strings.ReplaceAll(want.request, "{id}", run.ID), want.payload, nil)
		}
		s.must(http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=55s", nil, &run)
		if run.Status != want.status || want.output != "" && string(run.Output) != want.output {
			t.Errorf("%s is %s with output %s, want %s with %s", want.workflow, run.Status, run.Output, want.status, want.output)
		}
	}
	s.Stop(t)
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	verify := exec.CommandContext(t.Context(), program, "verify")
	verify.Env = harness.CleanEnv("DATABASE_URL=" + dsn)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("stepwell verify: %v\n%s", err, out)
	}
}

// writeRelease makes runs of all kinds with this program, and keeps the database.
func writeRelease(t *testing.T, file string) {
	dsn := testdb.Empty(t)
	s := startServer(t, dsn)
	s.serveRelease(1)
	s.must(http.MethodPut, "/v1/limits/few", map[string]any{"perKey": 5}, nil)
	s.must(http.MethodPut, "/v1/schedules/nightly", map[string]any{"cron": "30 2 * * *", "workflow": "completes", "deployment": "f"}, nil)
	s.must(http.MethodPost, "/v1/schedules/nightly/pause", nil, nil)
	s.must(http.MethodPost, "/v1/keys", map[string]any{"name": "app", "role": "invoke"}, nil)
	for _, want := range ofRelease {
		body := map[string]any{"workflow": want.workflow, "attributes": map[string]any{"kind": want.workflow}}
		if want.workflow != "flows" && want.workflow != "approves" {
			body["deployment"] = "f"
		}
		if want.workflow == "delays" {
			body["delay"] = soon
		}
		var run releaseRun
		s.must(http.MethodPost, "/v1/runs", body, &run)
		if want.workflow == "cancels" {
			s.must(http.MethodPost, "/v1/runs/"+run.ID+"/cancel", map[string]any{}, nil)
		}
		eventually(t, want.workflow+" is at "+want.until, func() bool {
			return bytes.Contains(s.send(t.Context(), http.MethodGet, "/v1/runs/"+run.ID+"/events", nil).Body, []byte(want.until))
		})
	}
	s.Stop(t)
	dump := exec.CommandContext(t.Context(), "pg_dump", "--schema="+migrations.DefaultSchema, "--no-owner", "--no-privileges", "--inserts",
		"--rows-per-insert=1000", dsn)
	text, err := dump.Output()
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, zipped.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// commandsOfPSQL are lines of a dump that are not SQL.
var commandsOfPSQL = regexp.MustCompile(`(?m)^\\.*$`)

// restore executes a dump.
func restore(t *testing.T, dsn, dump string) {
	t.Helper()
	f, err := os.Open(dump)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.PgConn().Exec(t.Context(), commandsOfPSQL.ReplaceAllString(string(text), "")).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

type releaseRun struct {
	ID, Status string
	Output     json.RawMessage
}

// runOf returns the run of a workflow of which there is one.
func (s *server) runOf(workflow string) releaseRun {
	s.t.Helper()
	var list struct{ Data []releaseRun }
	s.must(http.MethodGet, "/v1/runs?limit=1&workflow="+workflow, nil, &list)
	if len(list.Data) != 1 {
		s.t.Fatalf("found no run of %s", workflow)
	}
	return list.Data[0]
}

// must sends a request that must succeed.
func (s *server) must(method, path string, body, into any) {
	s.t.Helper()
	got := s.send(s.t.Context(), method, path, body)
	if got.Err != nil || got.Status >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: got %d %s, %v", method, path, got.Status, got.Body, got.Err)
	}
	if into != nil {
		if err := json.Unmarshal(got.Body, into); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, got.Body)
		}
	}
}

// serveRelease serves the workflows of ofRelease as the deployment f, and stores those that are flows. The step of
// retries fails in the first age.
func (s *server) serveRelease(age int) {
	s.t.Helper()
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call releaseCall
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch {
		case call.Type != "step":
			_ = json.NewEncoder(w).Encode(map[string]any{"commands": call.next()})
		case call.Run.Workflow == "retries" && age == 1:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, `"done"`)
		}
	}))
	s.t.Cleanup(function.Close)
	s.must(http.MethodPut, "/v1/deployments/f", map[string]any{"url": function.URL}, nil)
	if age > 1 {
		return
	}
	for _, document := range []string{
		`{"flow": "flows", "deployment": "f", "steps": {"first": {"call": "first"}, "pause": {"needs": ["first"], "wait": "` + soon + `"},
			"last": {"needs": ["pause"], "call": "last"}}, "output": {"last": "${steps.last.output}"}}`,
		`{"flow": "approves", "steps": {"ask": {"approval": {"title": "Ship?"}}}, "output": "${steps.ask.output.votes[0].by}"}`,
	} {
		s.must(http.MethodPost, "/v1/flows", map[string]any{"document": document}, nil)
	}
}

// releaseCall is what the workflows read of a call.
type releaseCall struct {
	Type string
	Run  struct {
		Workflow string
		Store    map[string]any
	}
	Events []struct {
		Type    string
		Payload json.RawMessage
	}
}

// payload returns the payload of the last event of a type.
func (c releaseCall) payload(event string) (text json.RawMessage, ok bool) {
	for _, e := range c.Events {
		if e.Type == event {
			text, ok = e.Payload, true
		}
	}
	return text, ok
}

// next returns the commands of a workflow: one that begins it, and one that completes it with what it waited for.
func (c releaseCall) next() []any {
	one := func(kind string, fields ...any) []any {
		command := map[string]any{"type": kind}
		for i := 0; i < len(fields); i += 2 {
			command[fmt.Sprint(fields[i])] = fields[i+1]
		}
		return []any{command}
	}
	wait := one("wait", "id", "w", "for", soon)
	slow := map[string]any{"backoff": soon, "maxBackoff": soon}
	begins := map[string][]any{
		"completes": one("runStep", "id", "s"), "delays": one("runStep", "id", "s"), "cancels": wait, "sleeps": wait, "child": wait,
		"fails":   one("fail", "error", map[string]any{"message": "declined", "code": "declined"}),
		"retries": one("runStep", "id", "s", "retry", slow), "parent": one("startChild", "id", "c", "workflow", "child"),
		"stores":  append(one("setStore", "id", "v", "values", map[string]any{"kept": "stored"}), wait...),
		"asks":    one("openHook", "id", "h", "token", "token-of-asks"),
		"listens": one("openHook", "id", "h", "signal", map[string]any{"name": "news"}),
	}
	if _, woken := c.payload("wait_completed"); woken {
		return one("complete", "output", map[string]any{"sleeps": "awake", "child": "child", "stores": c.Run.Store["kept"]}[c.Run.Workflow])
	}
	for _, ends := range []string{"step_completed", "hook_received"} {
		if payload, ok := c.payload(ends); ok {
			return one("complete", "output", payload)
		}
	}
	if len(c.Events) > 2 {
		return []any{}
	}
	return begins[c.Run.Workflow]
}
