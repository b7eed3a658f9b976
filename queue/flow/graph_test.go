package flow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGraph has a step that needs two, one with a condition, and one that a catch leads to.
func TestGraph(t *testing.T) {
	t.Parallel()
	g := parse(t, `
flow: f
deployment: d
steps:
  a: {call: a, undo: {call: u}, catch: [{codes: [x, y], to: c}]}
  b: {when: 'input == "b"', call: other}
  c: {wait: 1s}
  e: {needs: [a, b], join: any, set: 1}
`).Graph()
	want := Graph{
		Steps: []GraphStep{
			{ID: "a", Kind: "call", Name: "a", Undo: true},
			{ID: "b", Kind: "call", Name: "other", Conditional: true},
			{ID: "c", Kind: "wait", Layer: 1},
			{ID: "e", Kind: "set", Join: "any", Layer: 2}, // c may stand for a
		},
		Edges: []GraphEdge{{"a", "c", "x, y"}, {"a", "e", ""}, {"b", "e", ""}},
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const mermaid = `flowchart TD
  s0["a<br>call"]
  s1{{"b<br>call other"}}
  s2["c<br>wait"]
  s3["e<br>set"]
  s0 -. "fails: x, y" .-> s2
  s0 --> s3
  s1 --> s3
`
	if diff := cmp.Diff(mermaid, g.Mermaid()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := mermaidText(`a"b<i>#`); got != "a#quot;b#lt;i#gt;#35;" {
		t.Errorf("escaped: %s", got)
	}
}
