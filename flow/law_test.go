package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/flowgen"
)

// randomFlow draws a document.
func randomFlow(t *rapid.T) string {
	return flowgen.Document(func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) })
}

// TestInstancesEndWithAllThatIsTheirs has a map fail while its items have more open than a decision may close. Each
// hook and each wait of an item is closed before its end, and the run goes on to its own.
func TestInstancesEndWithAllThatIsTheirs(t *testing.T) {
	t.Parallel()
	for signals := 1; signals <= 5; signals++ {
		p, err := Parse([]byte("flow: f\ndeployment: d\nsteps:\n" + flowgen.Crowd(100, signals)))
		if err != nil {
			t.Fatal(err)
		}
		trial := Trial{Results: map[string]Result{"crowd[0].a": failure("x")}}
		for n := 1; n < 100; n++ {
			trial.Results[fmt.Sprintf("crowd[%d].a", n)] = Result{After: time.Minute}
		}
		got, err := trial.Run(p)
		if err != nil || got.Status != entities.RunCompleted {
			t.Fatalf("%d signals: the run is %s: %v", signals, got.Status, err)
		}
		if open := leftOpen(got); len(open) > 0 {
			t.Errorf("%d signals: %v are open at the ends of their items", signals, open)
		}
	}
}

// leftOpen returns the hooks and waits that were open when the instance ended that they belong to.
func leftOpen(o Outcome) (left []string) {
	open := map[string]bool{}
	for _, e := range o.Events {
		switch e.Type {
		case entities.EventHookCreated, entities.EventWaitCreated:
			open[e.CorrelationID] = true
		case entities.EventHookDisposed, entities.EventHookConflict, entities.EventWaitCancelled, entities.EventWaitCompleted:
			delete(open, e.CorrelationID)
		case entities.EventStepCompleted, entities.EventStepFailed:
			for id := range open {
				if strings.HasPrefix(id, e.CorrelationID+".") {
					left = append(left, id)
				}
			}
		default:
		}
	}
	return left
}

// TestLateEventsOfWhatIsReleased: an event about an item of a map that has ended is no fault of the log.
func TestLateEventsOfWhatIsReleased(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte("{flow: f, deployment: d, steps: {m: {map: '[1]', key: \"'k'\", do: {steps: {a: {call: f}}}}, w: {wait: 1h}}}"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Trial{}.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Begin()
	late := Event{Seq: int64(len(got.Events)), Type: entities.EventHookReceived, CorrelationID: "m[k].a"}
	if err := s.Apply(contract.Run{}, append(slices.Clone(got.Events[:len(got.Events)-1]), late)); err != nil {
		t.Error(err)
	}
}

// ballots are what hooks and approvals receive.
var ballots = []json.RawMessage{
	json.RawMessage(`{"decision":"approve","by":"anna"}`), json.RawMessage(`{"decision":"approve","by":"bob"}`),
	json.RawMessage(`{"decision":"reject","by":"carl"}`), json.RawMessage(`7`), json.RawMessage(`{"request":"r1"}`),
}

// TestRandomFlows runs random documents with random results. Each run ends (R6 of the design: after a decision, the run
// has ended or something is under way), no step begins before what it needs has ended, none begins twice, and if the
// run fails, all steps that run in any case have begun, and exactly the steps that have or may have taken effect are
// undone, each after those that needed it.
func TestRandomFlows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := randomFlow(t)
		p, err := Parse([]byte(document))
		if err != nil {
			t.Fatalf("%v\nin:\n%s", err, document)
		}
		trial := Trial{Results: map[string]Result{}, Payloads: map[string][]json.RawMessage{}}
		for i := range p.steps {
			for range rapid.IntRange(0, 3).Draw(t, "votes") {
				trial.Payloads[p.steps[i].id] = append(trial.Payloads[p.steps[i].id], rapid.SampledFrom(ballots).Draw(t, "vote"))
			}
			drawResults(t, trial.Results, p.steps[i].id)
		}
		got, err := trial.Run(p)
		if err != nil {
			t.Fatalf("%v after %v of\n%s", err, got.Steps(), document)
		}
		checkOrder(t, p, got, document)
		checkDecisions(t, p, got, document)
		if open := leftOpen(got); len(open) > 0 {
			t.Fatalf("%v are open at the ends of their instances in\n%s", open, document)
		}
		if got.Status == entities.RunFailed {
			checkLast(t, p, got, document)
			checkUndone(t, p, got, document)
			checkBodiesUndone(t, p, got, document)
		}
	})
}

// drawResults draws the results of a step, and of the instances of bodies that it may have.
func drawResults(t *rapid.T, results map[string]Result, id string) {
	ids := []string{id}
	for _, n := range []string{"[0]", "[1]", "[2]", "[k1]", "[k2]", "[k3]", "#1", "#2", "#3", ""} {
		ids = append(ids, id+n, id+n+".a", id+n+".b", id+n+".c", id+n+".a[0]", id+n+".a[1]", id+n+".b[0]", id+n+".b[1]")
	}
	codes := []string{"", "", "", "", "", "", "x", "y", contract.CodeTimeout}
	for _, one := range ids {
		if code := rapid.SampledFrom(codes).Draw(t, "result"); code != "" {
			results[one] = failure(code)
		} else if rapid.IntRange(0, 3).Draw(t, "planned") > 0 {
			results[one] = output(flowgen.Planned)
		}
	}
}

// checkDecisions checks that a state which is kept between the decisions answers as one that is made of the whole log
// does: so does a remote function. Nothing that the log has is asked for again.
func checkDecisions(t *rapid.T, p *Program, o Outcome, document string) {
	kept, seen := p.Begin(), 0
	begun := map[string]bool{}
	for _, n := range o.decisions {
		if err := kept.Apply(contract.Run{Workflow: "random"}, o.Events[seen:n]); err != nil {
			t.Fatal(err)
		}
		for _, e := range o.Events[seen:n] {
			if strings.HasSuffix(string(e.Type), "_created") {
				begun[e.CorrelationID] = true
			}
		}
		seen = n
		commands, err := kept.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		whole, err := p.Answer(t.Context(), Call{Run: contract.Run{Workflow: "random"}, Events: o.Events[:n]})
		if got := string(mustJSON(map[string]any{"commands": commands})); err != nil || got != string(whole) {
			t.Fatalf("after %d events the kept state answers\n%s, and one of the whole log\n%s (%v) in\n%s\n%v", n, got, whole, err,
				document, o.Steps())
		}
		for _, c := range commands {
			var of struct{ Type, ID string }
			if err := json.Unmarshal(mustJSON(c), &of); err != nil {
				t.Fatal(err)
			}
			if (of.Type == "runStep" || of.Type == "wait" || of.Type == "openHook") && begun[of.ID] {
				t.Fatalf("%s begins again after %d events of\n%s", of.ID, n, document)
			}
		}
	}
}

// checkBodiesUndone checks that the calls in bodies are undone that took effect, or may have, and no others.
func checkBodiesUndone(t *rapid.T, p *Program, o Outcome, document string) {
	begin, end, failed := begins(o)
	for id := range begin {
		s := calledStep(t, p, id)
		if s == nil || strings.Contains(id, "~") {
			continue
		}
		_, ended := end[id]
		text, isFailed := failed[id]
		took := ended && !isFailed || strings.Contains(text, `"code":"`+contract.CodeTimeout+`"`)
		if _, isUndone := begin[id+undoSuffix]; isUndone != (took && s.undo != nil) {
			t.Fatalf("%s is undone: %v, want %v in %v of\n%s", id, isUndone, !isUndone, o.Steps(), document)
		}
	}
}

// calledStep returns the call in a body that has an ID, or nil.
func calledStep(t *rapid.T, p *Program, id string) *step {
	at := strings.IndexAny(id, "[#.~")
	if at < 0 {
		return nil
	}
	m := p.steps[p.byID[id[:at]]].action.many
	if m == nil {
		return nil
	}
	program, rest := m.Program, id[at:]
	if rest[0] == '.' {
		b, faults := m.fragment([]byte(flowgen.Planned))
		if faults != nil {
			t.Fatal(faults)
		}
		program = b.Program
	} else {
		rest = strings.TrimLeft(rest, "[]#k0123456789")
	}
	switch {
	case rest == "" && m.single:
		return &program.steps[0]
	case rest == "" || rest[0] == '~':
		return nil
	case !strings.ContainsAny(rest[1:], "[#.~"):
		s := &program.steps[program.byID[rest[1:]]]
		if s.action.kind == kindCall {
			return s
		}
		return nil
	default:
		return calledStep(t, program, rest[1:])
	}
}

// begins returns where in the log each step begins, and where it ends.
func begins(o Outcome) (begin, end map[string]int, failed map[string]string) {
	begin, end, failed = map[string]int{}, map[string]int{}, map[string]string{}
	for i, e := range o.Events {
		_, what, _ := strings.Cut(string(e.Type), "_")
		switch {
		case e.CorrelationID == "" || strings.HasSuffix(e.CorrelationID, TimeSuffix):
		case what == "created":
			begin[e.CorrelationID] = i
		case end[e.CorrelationID] == 0:
			end[e.CorrelationID] = i
			if e.Type == entities.EventStepFailed {
				failed[e.CorrelationID] = string(e.Payload)
			}
		}
	}
	return begin, end, failed
}

func checkOrder(t *rapid.T, p *Program, o Outcome, document string) {
	created := map[string]int{}
	for _, e := range o.Events {
		if strings.HasSuffix(string(e.Type), "_created") && e.CorrelationID != "" {
			if created[e.CorrelationID]++; created[e.CorrelationID] > 1 {
				t.Fatalf("%s begins twice in %v of\n%s", e.CorrelationID, o.Steps(), document)
			}
		}
	}
	begin, end, _ := begins(o)
	skipped := map[string]bool{} // a skip may come as soon as nobody needs the step, or as it cannot begin any more
	for _, e := range o.Events {
		skipped[e.CorrelationID] = e.Data.Skipped != ""
	}
	for i := range p.steps {
		s := &p.steps[i]
		at, begun := begin[s.id]
		if skipped[s.id] && (len(p.goals) > 0 || s.join == joinEvery || s.join == joinNone) {
			continue
		}
		if !begun || s.join == joinAny || s.isLast() {
			continue // any begins with the first; last steps also begin when something will never begin
		}
		for _, needed := range s.needs {
			if ended, ok := end[p.steps[needed].id]; (!ok || ended > at) && !p.steps[needed].action.hasHook() {
				t.Fatalf("%s begins before %s has ended: %v of\n%s", s.id, p.steps[needed].id, o.Steps(), document)
			}
		}
	}
}

// hasHook reports whether the end of a step is not the first thing that the log says about its hook.
func (a action) hasHook() bool {
	return a.kind == kindSignal || a.kind == kindHook || a.kind == kindApproval
}

func checkLast(t *rapid.T, p *Program, o Outcome, document string) {
	begin, _, _ := begins(o)
	for i := range p.steps {
		if _, begun := begin[p.steps[i].id]; p.steps[i].isLast() && !begun {
			t.Fatalf("%s has not begun in %v of\n%s", p.steps[i].id, o.Steps(), document)
		}
	}
}

func checkUndone(t *rapid.T, p *Program, o Outcome, document string) {
	begin, end, failed := begins(o)
	for i := range p.steps {
		s := &p.steps[i]
		_, ended := end[s.id]
		text, isFailed := failed[s.id]
		took := ended && !isFailed || strings.Contains(text, `"code":"`+contract.CodeTimeout+`"`)
		at, isUndone := begin[s.id+undoSuffix]
		wasSkipped := slices.Contains(o.Steps(), s.id+" skipped")
		if want := s.undo != nil && took && !wasSkipped; want != isUndone {
			t.Fatalf("%s undone: %v, want %v, in %v of\n%s", s.id, isUndone, want, o.Steps(), document)
		}
		if !isUndone {
			continue
		}
		for later := range p.ancestorsOf(i) {
			if ends, ok := end[p.steps[later].id+undoSuffix]; ok && ends > at {
				t.Fatalf("%s is undone before %s, in %v of\n%s", s.id, p.steps[later].id, o.Steps(), document)
			}
		}
	}
}

// ancestorsOf returns the steps that a step is an ancestor of.
func (p *Program) ancestorsOf(i int) map[int]bool {
	later := map[int]bool{}
	for j := range p.steps {
		if p.ancestors(j)[i] {
			later[j] = true
		}
	}
	return later
}
