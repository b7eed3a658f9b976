package remote

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// TestEveryReasonHasASentence, every remedy a command, and all that wants a person both.
func TestEveryReasonHasASentence(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../handlers/rest/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, have := range map[string][]string{
		"ReasonKind": slices.Sorted(maps.Keys(sentences)), "Remedy": slices.Sorted(maps.Keys(remedies)),
		"AttentionKind": slices.Sorted(maps.Keys(attentionKinds)),
	} {
		if diff := cmp.Diff(slices.Sorted(slices.Values(doc.Components.Schemas[schema].Enum)), have); diff != "" {
			t.Errorf("%s (-openapi.yaml +here):\n%s", schema, diff)
		}
	}
	for kind := range sentences {
		got := reason{Kind: kind, StepID: "x"}.sentence()
		if !strings.HasSuffix(got, ".") || strings.ToUpper(got[:1]) != got[:1] {
			t.Errorf("%s: got %q", kind, got)
		}
	}
	for kind := range attentionKinds {
		if got := (attentionItem{Kind: kind, Count: 1}).sentence(); !strings.HasSuffix(got, ".") {
			t.Errorf("%s: got %q", kind, got)
		}
	}
	if got := (reason{Kind: "moon_phase"}).sentence(); got != "moon phase." {
		t.Errorf("got %q for a kind of a newer server", got)
	}
}
