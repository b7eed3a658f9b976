package api_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "generate types.gen.go")

// TestTypesAreGenerated checks that the types are those of openapi.yaml.
func TestTypesAreGenerated(t *testing.T) {
	t.Parallel()
	generated := filepath.Join(t.TempDir(), "types.go")
	generate := exec.CommandContext(t.Context(), "go", "-C", "generator", "tool", "oapi-codegen",
		"-config", "config.yaml", "-o", generated, "../../openapi.yaml")
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", generate, err, output)
	}
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("types.gen.go", want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("types.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("types.gen.go does not match openapi.yaml: run this test with -update (-want +got):\n%s", diff)
	}
}
