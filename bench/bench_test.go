package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary also be the function and the app with a server in it, like the bench itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{functionCommand, embeddedCommand}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// buildServer builds the server of the module around this one.
func buildServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stepwell")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/stepwell")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return path
}

// tiny returns a plan that performs every measurement only a few times.
func tiny() plan {
	p := planFor(true)
	p.warm, p.window, p.engine, p.open = 0, 20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	p.clients, p.inFlight, p.floorTimes = []int{2}, []int{3}, 5
	p.shapes = []string{"seq-3", "wide-4"}
	p.idle, p.ended, p.endFor = time.Second, 20, 50*time.Millisecond
	return p
}

// TestSmoke runs all parts and the report with a tiny plan, and checks that no operation fails. It leaves out sdk and
// peers, which need Node and the network.
func TestSmoke(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts Postgres and a server")
	}
	o := options{short: true, root: "..", server: buildServer(t), out: t.TempDir(), line: "go test"}
	for _, name := range partNames() {
		if name != "sdk" && name != "peers" {
			o.only = append(o.only, name)
		}
	}
	if err := run(t.Context(), o, tiny()); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(o.out); err != nil {
		t.Fatal(err)
	}
	all, err := loadResults(o.out)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(o.only) {
		t.Errorf("%d parts have results, want %d", len(all), len(o.only))
	}
	for _, part := range all {
		for _, r := range part.Rows {
			done := r.Ops + int64(r.Counts[countLate]) // in a window this short, runs may only end after it
			if r.Errors > 0 || r.Unfinished > 0 || (done == 0 && part.Part != "idle" && part.Part != "disk") {
				data, _ := json.Marshal(r)
				t.Errorf("%s failed: %s", part.Part, data)
			}
		}
	}
	report, err := os.ReadFile(filepath.Join(o.out, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Targets", "| append, one run |", "| asked /s |", "| idle server |"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report has no %q", want)
		}
	}
}
