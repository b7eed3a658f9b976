package flow

import (
	"fmt"
	"strings"
)

// Graph is the structure of a program, for those who draw it.
type Graph struct {
	Steps []GraphStep `json:"steps"`
	Edges []GraphEdge `json:"edges"`
}

// GraphStep is a step of a graph.
type GraphStep struct {
	ID string `json:"id"`
	// Kind is the field that says what the step does, such as call, and Name the function, workflow or signal.
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Conditional is set for steps with a condition, and Undo for those that can be undone.
	Conditional bool `json:"conditional,omitempty"`
	Undo        bool `json:"undo,omitempty"`
	// Join is any or always; empty for all.
	Join string `json:"join,omitempty"`
	// Layer is 0 for steps that wait for no other, and otherwise one more than that of all that they wait for.
	Layer int `json:"layer"`
}

// GraphEdge leads from a step to one that needs it, or that a catch leads to.
type GraphEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Catch has the codes of the failures that lead there, or "any"; empty if the step is needed.
	Catch string `json:"catch,omitempty"`
}

// Graph returns the structure of the program, in the order of the document.
func (p *Program) Graph() Graph {
	g := Graph{Steps: []GraphStep{}, Edges: []GraphEdge{}}
	layers := map[int]int{}
	for i := range p.steps {
		s := &p.steps[i]
		drawn := GraphStep{
			ID: s.id, Kind: string(s.action.kind), Name: s.action.name, Conditional: s.when != nil, Undo: s.undo != nil,
			Layer: p.layer(i, layers),
		}
		if s.join != joinAll {
			drawn.Join = string(s.join)
		}
		g.Steps = append(g.Steps, drawn)
		if s.target == 0 { // what leads to it is the catch alone
			for _, needed := range s.needs {
				g.Edges = append(g.Edges, GraphEdge{From: p.steps[needed].id, To: s.id})
			}
		}
		for _, c := range s.catches {
			if c.to != 0 {
				g.Edges = append(g.Edges, GraphEdge{s.id, p.steps[c.to-1].id, codesOf(c)})
			}
		}
	}
	return g
}

func codesOf(c catch) string {
	if len(c.codes) == 0 {
		return "any"
	}
	return strings.Join(c.codes, ", ")
}

// layer returns the layer of a step. Known has those found before.
func (p *Program) layer(i int, known map[int]int) int {
	if layer, ok := known[i]; ok {
		return layer
	}
	layer := 0
	for _, before := range p.before(i) {
		layer = max(layer, p.layer(before, known)+1)
	}
	known[i] = layer
	return layer
}

// Mermaid returns the graph as a flowchart for Mermaid (https://mermaid.js.org).
func (g Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	numbers := map[string]int{}
	for n, s := range g.Steps {
		numbers[s.ID] = n
		label := s.ID
		if s.Name != "" && s.Name != s.ID {
			label += "<br>" + s.Kind + " " + s.Name
		} else {
			label += "<br>" + s.Kind
		}
		open, end := `["`, `"]`
		if s.Conditional {
			open, end = `{{"`, `"}}`
		}
		fmt.Fprintf(&b, "  s%d%s%s%s\n", n, open, mermaidText(label), end)
	}
	for _, e := range g.Edges {
		if e.Catch != "" {
			fmt.Fprintf(&b, "  s%d -. \"%s\" .-> s%d\n", numbers[e.From], mermaidText("fails: "+e.Catch), numbers[e.To])
			continue
		}
		fmt.Fprintf(&b, "  s%d --> s%d\n", numbers[e.From], numbers[e.To])
	}
	return b.String()
}

// mermaidText escapes what ends a text there. The line breaks of labels stay.
func mermaidText(s string) string {
	s = strings.NewReplacer("#", "#35;", `"`, "#quot;", "&", "#amp;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace(s)
	return strings.ReplaceAll(s, "#lt;br#gt;", "<br>")
}
