package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// worldByPreload installs the World with NODE_OPTIONS alone, without a change to the app or its build.
func worldByPreload(t *testing.T, s *server, l *sdkLine) {
	a := newApp(t, appOptions{line: l, stepwell: s.url(), deployment: l.named("preload"), preload: true})
	s.register(t, l.named("preload"), a.url())
	id := a.run(t, "sequential", 1)
	a.want(t, id, 4)
	s.wantLog(t, id, sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
	a.wantCounts(t, id, map[string]int{"add": 3})
}

// useWorld is a program that creates a World as the SDK does, and lists the events of a run.
const useWorld = `
const { createWorld } = require('@stepwell/world');
const world = createWorld();
world.events.list({ runId: process.argv[1] })
	.then(({ data }) => console.log(JSON.stringify({ specVersion: world.specVersion, events: data.length })));`

// worldFromServer installs the package that the server serves, and uses it with the app's SDK.
func worldFromServer(t *testing.T, s *server, a *app) {
	id := a.run(t, "sequential", 1)
	a.want(t, id, 4)

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	inDir(t, dir, nil, "npm", "install", "--no-audit", "--no-fund", s.url()+"/clients/world.tgz")
	sdk, err := filepath.Abs(filepath.Join(a.dir, "node_modules", "workflow"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sdk, filepath.Join(dir, "node_modules", "workflow")); err != nil {
		t.Fatal(err)
	}
	env := []string{"STEPWELL_URL=" + s.url(), "STEPWELL_DEPLOYMENT_ID=install", "STEPWELL_API_KEY=" + apiKey}
	out := inDir(t, dir, env, "node", "-e", useWorld, id)
	var got map[string]int
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("the World printed %s", out)
	}
	want := map[string]int{"specVersion": a.spec, "events": len(s.log(t, id))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the installed World (-want +got):\n%s", diff)
	}
}

// inDir runs a program in a folder and returns its standard output.
func inDir(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(cleanEnv(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Logf("%s printed:\n%s", name, exit.Stderr)
		}
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return out
}
