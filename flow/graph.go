package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
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

// Stage is how far a step of a run is, for those who draw it.
type Stage string

// The stages of a step.
const (
	StagePending   Stage = "pending" // it has not begun
	StageRunning   Stage = "running"
	StageRetrying  Stage = "retrying"
	StageWaiting   Stage = "waiting" // for time, a signal, a payload, or people
	StageCompleted Stage = "completed"
	StageFailed    Stage = "failed"
	StageCancelled Stage = "cancelled"
	StageSkipped   Stage = "skipped"
)

// StepStage is how far a step of a run is.
type StepStage struct {
	Stage Stage `json:"stage"`
	// Code is that of its failure.
	Code string `json:"code,omitempty"`
	// Undoing is how far undoing it is: running, retrying, completed, failed or cancelled. It is empty unless that has
	// begun.
	Undoing Stage `json:"undoing,omitempty"`
	// Items are those of a map, the iterations of a loop, or the steps that a planner has returned; nil for other steps,
	// and before the first one.
	Items *Items `json:"items,omitempty"`
}

// Items counts what the body of a step is executed for.
type Items struct {
	// Total is how many items a map has, if that is known.
	Total     int `json:"total,omitempty"`
	Begun     int `json:"begun"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	// Undone counts those of which something was undone.
	Undone int `json:"undone,omitempty"`
}

// Instances are instances of a step's body that are alike.
type Instances struct {
	// Stage is running, completed or failed, Code that of the failure, and Undone is set if something was undone.
	Stage  Stage
	Code   string
	Undone bool
	// Iteration is set for those of a loop, and for the calls of a planner.
	Iteration bool
	Count     int
}

// Parts returns the IDs whose events say how far the steps of a run are, those of the approvals among them, whose
// payloads do, too, and the IDs of the steps with bodies.
func (p *Program) Parts() (ids, approvals, bodies []string) {
	for i := range p.steps {
		s := &p.steps[i]
		ids = append(ids, s.id)
		switch {
		case s.action.many != nil:
			bodies = append(bodies, s.id)
		case s.action.kind == kindApproval:
			approvals = append(approvals, s.id)
		}
		if s.undo != nil {
			ids = append(ids, s.id+undoSuffix)
		}
		if s.action.timeout > 0 && s.action.kind.awaits() {
			ids = append(ids, s.id+TimeSuffix)
		}
	}
	return ids, approvals, bodies
}

// awaits reports whether a step of the kind waits for somebody else, through a hook.
func (k actionKind) awaits() bool { return k == kindSignal || k == kindHook || k == kindApproval }

// ItemsID returns the ID of the step that records the items of a map.
func ItemsID(step string) string { return step + itemsSuffix }

// Stages returns how far the steps of a run are, in the order of the document: by the events of [Program.Parts], of
// which failures have only the code, and the instances of bodies. It fails with [ErrLog].
func (p *Program) Stages(status entities.RunStatus, events []Event, of map[string][]Instances) ([]StepStage, error) {
	s := newState(p, &history{}, frame{})
	retrying := map[string]bool{}
	for _, e := range events {
		retrying[e.CorrelationID] = e.Type == entities.EventStepRetrying
		if err := s.apply(e); err != nil {
			return nil, err
		}
	}
	s.completeRun(status)
	stages := make([]StepStage, len(p.steps))
	for i := range p.steps {
		step := &p.steps[i]
		v := &stages[i]
		if len(of[step.id]) > 0 && s.steps[i].status == statusNone {
			s.steps[i].status = statusOpen
		}
		v.Items = step.items(of[step.id])
		v.Stage, v.Code = stageOf(s.steps[i], step.action.kind, status, retrying[step.id]), s.steps[i].code
		if s.undos[i].status != statusNone {
			v.Undoing = stageOf(s.undos[i], step.undo.kind, status, retrying[step.id+undoSuffix])
		}
	}
	return stages, nil
}

// completeRun notes which step has completed a run. The log does not name it.
func (s *state) completeRun(status entities.RunStatus) {
	if status != entities.RunCompleted {
		return
	}
	t := decision{state: s}
	for i := range s.Program.steps {
		if s.Program.steps[i].action.kind != kindComplete || s.steps[i].status != statusNone {
			continue
		}
		if begins, known := t.isWanted(i); begins && known {
			s.steps[i].status = statusCompleted
			return
		}
	}
}

func stageOf(p progress, kind actionKind, run entities.RunStatus, retrying bool) Stage {
	switch {
	case p.status == statusNone:
		return StagePending
	case p.status == statusFailed && p.code == contract.CodeCancelled, p.status == statusOpen && run.Ended():
		return StageCancelled
	case p.status != statusOpen:
		return Stage(p.status)
	case retrying:
		return StageRetrying
	case kind.awaits() || kind == kindWait:
		return StageWaiting
	default:
		return StageRunning
	}
}

// items counts the instances of a step's body. A failure that the only step of a body catches is none.
func (s *step) items(list []Instances) *Items {
	m := s.action.many
	if m == nil {
		return nil
	}
	var catches []catch
	if m.single && m.planning == nil {
		catches = m.steps[0].catches
	}
	items := &Items{}
	for _, one := range list {
		if one.Iteration && m.planning != nil {
			continue
		}
		items.Begun += one.Count
		if one.Undone {
			items.Undone += one.Count
		}
		caught := slices.ContainsFunc(catches, func(c catch) bool { return c.fits(one.Code) })
		switch {
		case one.Stage == StageCompleted, one.Stage == StageFailed && caught:
			items.Completed += one.Count
		case one.Stage == StageFailed:
			items.Failed += one.Count
		default:
		}
	}
	if items.Begun == 0 {
		return nil
	}
	return items
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
