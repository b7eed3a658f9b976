package remote

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// TestAllThatNeedsAttentionHasASentence, and a command.
func TestAllThatNeedsAttentionHasASentence(t *testing.T) {
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
	want := slices.Sorted(slices.Values(doc.Components.Schemas["AttentionKind"].Enum))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(attentionKinds))); diff != "" {
		t.Errorf("(-openapi.yaml +here):\n%s", diff)
	}
	for kind := range attentionKinds {
		if got := attentionText(api.AttentionItem{Kind: api.AttentionKind(kind), Count: 1}); !strings.HasSuffix(got, ".") {
			t.Errorf("%s: got %q", kind, got)
		}
	}
}

// TestWhyPrintsTheLinesOfAnError and nothing that controls the terminal.
func TestWhyPrintsTheLinesOfAnError(t *testing.T) {
	t.Parallel()
	const failed = `{"code":"FATAL","message":"no card\n  at pay (shop.js:1)\u001b[2J\n"}`
	for answer, want := range map[string]string{
		`{"verdict":"It waits.","reasons":[{"sentence":"The call of its function has failed once.","error":` + failed + `,"commands":["stepwell x"]}]}`: "It waits.\n" +
			"- The call of its function has failed once.\n" +
			"  last error: FATAL: no card\n      at pay (shop.js:1)\\x1b[2J\n  stepwell x\n",
		`{"end":{"status":"failed","error":` + failed + `}}`: "failed: \n  FATAL: no card\n      at pay (shop.js:1)\\x1b[2J\n",
	} {
		s, out, _ := newSession(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
		if err := (whyCmd{ID: "wrun_1"}).Run(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestWhatCannotBeReachedIsMoved: the commands that are printed leave a deployment what else it has registered.
func TestWhatCannotBeReachedIsMoved(t *testing.T) {
	t.Parallel()
	const want = "deployments move shop URL"
	if got := expandItem(attentionKinds["deployment_unreachable"].command, api.AttentionItem{Deployment: "shop"}); got != want {
		t.Errorf("attention: got %q", got)
	}
}
