package remote

import (
	"encoding/json"
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

// TestEveryReasonHasASentence, every remedy a command, and all that needs attention both.
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
}

// TestSentences checks the words, which are also those of the dashboard: ui/test/why.test.ts checks the same file.
func TestSentences(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/sentences.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct {
		Reason   reason
		Sentence string
	}
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	missing := maps.Clone(sentences)
	for _, e := range examples {
		delete(missing, string(e.Reason.Kind))
		if got := e.Reason.sentence(); got != e.Sentence {
			t.Errorf("%s: got %q, want %q", e.Reason.Kind, got, e.Sentence)
		}
	}
	if len(missing) > 0 {
		t.Errorf("sentences.json has no example of %q", slices.Sorted(maps.Keys(missing)))
	}
	for kind := range attentionKinds {
		if got := attentionText(api.AttentionItem{Kind: api.AttentionKind(kind), Count: 1}); !strings.HasSuffix(got, ".") {
			t.Errorf("%s: got %q", kind, got)
		}
	}
	if got := (reason{Kind: "moon_phase"}).sentence(); got != "moon phase." {
		t.Errorf("got %q for a kind of a newer server", got)
	}
}

// TestWhyPrintsTheLinesOfAnError and nothing that controls the terminal.
func TestWhyPrintsTheLinesOfAnError(t *testing.T) {
	t.Parallel()
	const failed = `{"code":"FATAL","message":"no card\n  at pay (shop.js:1)\u001b[2J\n"}`
	for answer, want := range map[string]string{
		`{"verdict":"It waits.","reasons":[{"kind":"function_fails","failures":1,"error":` + failed + `}]}`: "It waits.\n" +
			"- The call of its function has failed once.\n" +
			"  last error: FATAL: no card\n      at pay (shop.js:1)\\x1b[2J\n",
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
	if got := remedies["putDeployment"]("", reason{Kind: "unreachable", Deployment: "shop"}); got != want {
		t.Errorf("why: got %q", got)
	}
	if got := attentionKinds["deployment_unreachable"].command(api.AttentionItem{Deployment: "shop"}); got != want {
		t.Errorf("attention: got %q", got)
	}
}
