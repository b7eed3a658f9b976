package main

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSBOM(t *testing.T) {
	t.Parallel()
	got := newSBOM(&debug.BuildInfo{
		GoVersion: "go1.26.1",
		Main:      debug.Module{Path: "example.com/main", Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v0.1.0"},
			{Path: "example.com/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.1"}},
		},
	})
	want := []component{
		{"library", "std", "1.26.1", "pkg:golang/std@1.26.1"},
		{"library", "example.com/a", "v0.1.0", "pkg:golang/example.com/a@v0.1.0"},
		{"library", "example.com/fork", "v2.0.1", "pkg:golang/example.com/fork@v2.0.1"},
	}
	if diff := cmp.Diff(want, got.Components); diff != "" {
		t.Error(diff)
	}
	if got.Metadata.Component.PURL != "pkg:golang/example.com/main@v1.2.3" {
		t.Errorf("got %+v", got.Metadata.Component)
	}
}

// TestSBOMHasTheModulesOfTheBinary compares the command's output with what go version -m says of the same binary.
func TestSBOMHasTheModulesOfTheBinary(t *testing.T) {
	t.Parallel()
	listed, err := exec.Command("go", "version", "-m", os.Args[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd, stderr := asProcess(t, "sbom")
	cmd.Env = append(cmd.Env, "STEPWELL_LOG=text")
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	modules := 0
	for line := range strings.Lines(string(listed)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules++
			if !strings.Contains(string(printed), `"pkg:golang/`+f[1]+"@"+f[2]+`"`) {
				t.Errorf("the bill of materials lacks %s %s", f[1], f[2])
			}
		}
	}
	if modules < 20 {
		t.Errorf("go version -m lists %d modules, want those of the server", modules)
	}
}
