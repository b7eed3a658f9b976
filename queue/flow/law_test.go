package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// randomFlow draws a document whose steps stand in any order.
func randomFlow(t *rapid.T) string {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	lines := make([]string, n)
	for i := range n {
		fields := []string{rapid.SampledFrom([]string{
			"call: f", "call: f", "call: f", "wait: 1h", "set: 1", "signal: {name: s, within: 1h}", "fail: {message: no}",
			"http: 'https://example.com/${run.id}'", "http: 'https://example.com/${run.id}'", "hook: {within: 1h}", "emit: news",
			"approval: {title: t, quorum: 2, deadline: 1h, onTimeout: approve}", "start: other",
		}).Draw(t, "kind")}
		isCall := fields[0] == "call: f" || strings.HasPrefix(fields[0], "http")
		needs := rapid.SliceOfNDistinct(rapid.IntRange(0, max(i-1, 0)), 0, min(i, 3), rapid.ID[int]).Draw(t, "needs")
		if i > 0 && len(needs) > 0 {
			ids := make([]string, len(needs))
			for k, j := range needs {
				ids[k] = fmt.Sprintf("s%d", j)
			}
			join := rapid.SampledFrom([]string{"all", "all", "any", "always"}).Draw(t, "join")
			fields = append(fields, "needs: ["+strings.Join(ids, ", ")+"]", "join: "+join)
			if (join != "any" || len(ids) == 1) && rapid.Bool().Draw(t, "conditional") {
				fields = append(fields, fmt.Sprintf("when: 'steps.%s.%s'", ids[0],
					rapid.SampledFrom([]string{"failed", "skipped", "status == \"completed\"", "output.missing"}).Draw(t, "when")))
			}
		}
		if isCall && rapid.Bool().Draw(t, "undo") {
			fields = append(fields, rapid.SampledFrom([]string{
				"undo: {call: u}", "undo: {http: {url: 'https://example.com', body: '${undo}'}}", "undo: {call: u, input: '${undo.output.missing}'}",
			}).Draw(t, "input of the undo"))
		}
		if rapid.IntRange(0, 3).Draw(t, "catch") == 0 {
			fields = append(fields, "catch: [{codes: [x, flow.expression]}]")
		}
		lines[i] = fmt.Sprintf("  s%d: {%s}\n", i, strings.Join(fields, ", "))
	}
	return "flow: random\ndeployment: d\nsteps:\n" + strings.Join(rapid.Permutation(lines).Draw(t, "order"), "")
}

// ballots are what hooks and approvals receive.
var ballots = []json.RawMessage{
	json.RawMessage(`{"decision":"approve","by":"anna"}`), json.RawMessage(`{"decision":"approve","by":"bob"}`),
	json.RawMessage(`{"decision":"reject","by":"carl"}`), json.RawMessage(`7`),
}

// TestRandomFlows runs random documents with random results. Each run ends (R6 of the design: after a decision, the run
// has ended or something is under way), no step begins before what it needs has ended, none begins twice, and if the run
// fails, all steps that run in any case have begun, and exactly the steps that have or may have taken effect are undone,
// each after those that needed it.
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
			if code := rapid.SampledFrom([]string{"", "", "", "x", "y", contract.CodeTimeout}).Draw(t, "result"); code != "" {
				trial.Results[p.steps[i].id] = failure(code)
			}
		}
		got, err := trial.Run(p)
		if err != nil {
			t.Fatalf("%v after %v of\n%s", err, got.Steps(), document)
		}
		checkOrder(t, p, got, document)
		if got.Status == entities.RunFailed {
			checkLast(t, p, got, document)
			checkUndone(t, p, got, document)
		}
	})
}

// begins returns where in the log each step begins, and where it ends.
func begins(o Outcome) (begin, end map[string]int, failed map[string]string) {
	begin, end, failed = map[string]int{}, map[string]int{}, map[string]string{}
	for i, e := range o.Events {
		_, what, _ := strings.Cut(string(e.Type), "_")
		switch {
		case e.CorrelationID == "" || strings.HasSuffix(e.CorrelationID, timeSuffix):
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
	for i := range p.steps {
		s := &p.steps[i]
		at, begun := begin[s.id]
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
