package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAppEnvironment(t *testing.T) {
	t.Parallel()
	got := appEnvironment([]string{"PATH=/bin", "WORKFLOW_TARGET_WORLD=local", "NODE_ENV=development", "STEPWELL_URL=x",
		"DATABASE_URL=y", "VERCEL=1", "https_proxy=z", "HTTP_PROXY=z", "PORT=1", "SUPPORT=1"}, "PORT=0", "STEPWELL_URL=here")
	want := []string{"PATH=/bin", "SUPPORT=1", "PORT=0", "STEPWELL_URL=here"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIsNewer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string, age time.Duration) string {
		path, when := filepath.Join(dir, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		return path
	}
	older, file, newer := at("older", 2*time.Hour), at("file", time.Hour), at("newer", 0)
	for _, of := range []struct {
		name, file string
		others     []string
		want, bad  bool
	}{
		{"OK", file, []string{older}, true, false},
		{"OneIsNewer", file, []string{older, newer}, false, false},
		{"Missing", filepath.Join(dir, "none"), []string{older}, false, false},
		{"OtherMissing", file, []string{filepath.Join(dir, "none")}, false, true},
	} {
		got, err := isNewer(of.file, of.others...)
		if got != of.want || (err != nil) != of.bad {
			t.Errorf("%s: %v, %v", of.name, got, err)
		}
	}
}

// TestMeasuredSample checks that the sample counts operations, each of which may have several latencies.
func TestMeasuredSample(t *testing.T) {
	t.Parallel()
	got := row{}.with(measured{Seconds: 2, Latencies: []float64{10, 20, 30, -1}}.sample(2))
	if got.Ops != 2 || got.perSecond() != 1 || got.Latency.N != 4 || got.Latency.Max < 29.9 || got.Latency.Max > 30.1 {
		t.Errorf("got %+v", got)
	}
}

func TestTidyPath(t *testing.T) {
	t.Parallel()
	const id = "01KAKQ9V3Y5SZ4H7W2X8B6C0DE"
	for path, want := range map[string]string{
		"/sdk/v4/runs/wrun_" + id + "/events/step_created":   "/sdk/v4/runs/{wrun}/events/step_created",
		"/sdk/v2/runs/wrun_" + id + "/steps/step_" + id:      "/sdk/v2/runs/{wrun}/steps/{step}",
		"/topic/__wkf_step_step----a/consumer/c/lease/aB.9=": "/topic/__wkf_step_{name}/consumer/c/lease/{receipt}",
		"/.well-known/workflow/v1/flow":                      "/.well-known/workflow/v1/flow",
	} {
		if got := normalizePath(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// tracedRun is the trace of a run: the start, a delivery that overlaps with a request, the end of the run, and requests
// after the end.
var tracedRun = []exchange{
	{From: fromApp, Path: "/runs/{wrun}/events/run_created", Status: 200, At: 0, Took: 4},
	{From: fromApp, Path: "/topic/flow", Status: 201, At: 1, Took: 5},
	{From: fromServer, Path: "/flow", Status: 200, At: 10, Took: 40},
	{From: fromApp, Path: "/runs/{wrun}/status", Status: 503, At: 12, Took: 3},
	{From: fromApp, Path: "/runs/{wrun}/status", Status: 200, At: 30, Took: 10},
	{From: fromApp, Path: "/lease", Status: 204, At: 45, Took: 1},
}

func TestShares(t *testing.T) {
	t.Parallel()
	until, ok := ended(tracedRun)
	if !ok || until != 40 {
		t.Fatalf("it ended at %g, %v; want 40", until, ok)
	}
	want := shares{Server: 6 + 3 + 10, App: 2 + 15, Queue: 4}
	if got := sharesUntil(tracedRun, until); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, ok := ended(tracedRun[:4]); ok {
		t.Error("a refused read of the status was taken for the end")
	}
}

func TestGaps(t *testing.T) {
	t.Parallel()
	want := []float64{0, 1, 4, 2, 15, 5}
	if got := gaps(tracedRun); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRecorderOrder checks that times count from the first request, even if it is answered last.
func TestRecorderOrder(t *testing.T) {
	t.Parallel()
	var r recorder
	began := time.Now()
	r.add(began.Add(20*time.Millisecond), exchange{Path: "second", Took: 1})
	r.add(began, exchange{Path: "first", Took: 50})
	r.add(began.Add(30*time.Millisecond), exchange{Path: "third", Took: 30})
	want := []exchange{{Path: "first", Took: 50}, {Path: "second", At: 20, Took: 1}, {Path: "third", At: 30, Took: 30}}
	if got := r.take(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.take(); len(got) != 0 {
		t.Errorf("got %+v again", got)
	}
}

func TestRecorderForwardsRequests(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the answer shows errors
		w.Header().Set("X-Seen", r.Header.Get("X-Sent"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append(body, r.URL.RawQuery...))
	}))
	defer target.Close()
	var r recorder
	defer r.close()
	at, err := r.between(t.Context(), fromApp, target.URL)
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPut, at+"/here?a=b", strings.NewReader("body "))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-Sent", "this")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "body a=b" || answer.StatusCode != http.StatusTeapot || answer.Header.Get("X-Seen") != "this" {
		t.Errorf("got %d %q %q, %v", answer.StatusCode, body, answer.Header, err)
	}
	var all []exchange
	for deadline := time.Now().Add(timeout); len(all) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		all = r.take() // recorded shortly after the answer
	}
	if len(all) != 1 || all[0].From != fromApp || all[0].Method != http.MethodPut || all[0].Path != "/here" ||
		all[0].Status != http.StatusTeapot || all[0].Took <= 0 {
		t.Errorf("recorded %+v", all)
	}
}

// sdkRows are two rounds on both backends, and a trace.
var sdkRows = []row{
	sdkRow("1 step", onStepwell, 1, 1, 30, 0.2), sdkRow("1 step", onWorldPostgres, 1, 1, 20, 0.4),
	sdkRow("1 step", onStepwell, 1, 2, 20, 0.1), sdkRow("1 step", onWorldPostgres, 1, 2, 20, 0.4),
	sdkRow("3 steps", onStepwell, 200, 1, 900, 0.4), sdkRow("3 steps", onWorldPostgres, 200, 1, 1000, 1),
	{Case: "trace", Variant: "three", Ops: 2, Latency: quantiles{P50: 40}, Trace: tracedRun, Profile: kinds(tracedRun),
		Counts: map[string]float64{"server": 38, "app": 34, "queue": 8, "requests of the app": 10, "requests of the server": 2}},
}

func sdkRow(what, on string, clients, round int, p50, postgres float64) row {
	return row{Case: what, Variant: on, Clients: clients, Round: round, Ops: 100, Seconds: 2,
		Latency: quantiles{N: 100, P50: p50, P90: p50, Max: p50}, PostgresCPU: postgres, FunctionCPU: 1.5, Statements: 4000}
}

func TestReportSDK(t *testing.T) {
	t.Parallel()
	got := render([]results{{Part: "sdk", Rows: sdkRows}})
	for _, want := range []string{
		"| SDK app, 1 step, p50 / world-postgres' | 1.25 | ≤ 0.9 | **no** |",
		"| SDK app, 3 steps, 200 in flight, runs /s / world-postgres' | 1.00 | ≥ 1.3 | **no** |",
		"| SDK app, 3 steps, 200 in flight, app CPU / world-postgres' | 1.00 | ≤ 0.9 | **no** |",
		"| SDK app, 3 steps, 200 in flight, Postgres CPU / world-postgres' | 0.40 | ≤ 0.4 | yes |",
		"| 1 step | 1 | 200 | 25.0 | 25.0 | 30.0 | 20.0 | 20.0 | 20.0 | 1.25 |  |  |  |",
		"| 3 steps | 200 | 100 | 900 | 900 | 900 | 1,000 | 1,000 | 1,000 | 0.90 | 50.0 | 50.0 | 1.00 |",
		"| 1 step | Stepwell | 1 | 15.0 | 1.00 | 0 | 1.50 | 0.38 | 16.5 | 40.0 | 0 |",
		"| 1 step | world-postgres | 1 | 15.0 |  | 0 | 4.00 |",
		"| three | 40.0 | 19.0 | 17.0 | 4.00 | 5.00 | 1.00 |",
		"| ` /runs/{wrun}/status` | 0.50 | 10.0 |",
		"| ` /runs/{wrun}/status → 503` | 0.50 | 3.00 |",
		"| app |  | `/runs/{wrun}/status` | 200 | 30.0 | 10.0 | 15.0 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "10 steps") {
		t.Error("the report contains a case that was not measured")
	}
}
