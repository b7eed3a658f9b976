package flow

import (
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// Six rules make flows durable. Each has tests that fail without it:
//
//	decisions are recorded, and not made again    TestDecisionsStand
//	the clock is the log's; there is no chance    TestNowIsTheNewestEvent
//	IDs are places                                TestRulesOfBodies; replay: TestRecordedRunsAreDecidedAgain
//	commands are in the document's order          TestRulesOfBodies; replay: TestRecordedRunsAreDecidedAgain
//	the meaning of documents has a number         replay: TestRecordedRunsAreDecidedAgain
//	                                              engine: TestUnknownSemanticsAreLeftAlone
//	when nothing follows, the run has ended, or   TestRandomFlows
//	the queue knows of something under way;       eventlog: TestNobodyDecidesThatNothingFollows (with the event)
//	each commit checks that                       engine: TestRefusedAnswerWritesNothingAndIsVisible (of a decision)

// TestDecisionsStand goes on with a log by a program that would have decided otherwise, as one does that evaluates an
// expression in another way. What the log has counts.
func TestDecisionsStand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before, after string // the steps, before and after the change
		known         string // the event up to which the log is known
		want          string // the commands that follow
	}{
		"a value": {
			`a: {set: 1}, b: {needs: a, call: f, input: "${steps.a.output}"}`,
			`a: {set: 2}, b: {needs: a, call: f, input: "${steps.a.output}"}`,
			"step_completed a", `[{"type":"runStep","id":"b","name":"f","input":1,"deployment":"d"}]`,
		},
		"a value that could not be evaluated": {
			`a: {set: "${input.x}", catch: [{}]}, b: {needs: a, call: f, input: "${steps.a.failed}"}`,
			`a: {set: 1, catch: [{}]}, b: {needs: a, call: f, input: "${steps.a.failed}"}`,
			"step_failed a", `[{"type":"runStep","id":"b","name":"f","input":true,"deployment":"d"}]`,
		},
		"a skip": {
			`a: {when: "false", call: f}, b: {needs: a, join: always, call: f, input: "${steps.a.skipped}"}`,
			`a: {when: "true", call: f}, b: {needs: a, join: always, call: f, input: "${steps.a.skipped}"}`,
			"step_completed a", `[{"type":"runStep","id":"b","name":"f","input":true,"deployment":"d"}]`,
		},
		"a beginning": {
			`a: {when: "true", call: f}, b: {needs: a, set: "${steps.a.skipped}"}`,
			`a: {when: "false", call: f}, b: {needs: a, set: "${steps.a.skipped}"}`,
			"step_completed a", `[{"type":"recordStep","id":"b","name":"b","output":false},{"type":"complete","output":{"b":false}}]`,
		},
		"an input": {
			`a: {call: f, input: 1, undo: {call: u, input: "${undo.input}"}}, b: {needs: a, fail: {message: no}}`,
			`a: {call: f, input: 2, undo: {call: u, input: "${undo.input}"}}, b: {needs: a, fail: {message: no}}`,
			"step_failed b", `[{"type":"runStep","id":"a~undo","name":"u","input":1,"deployment":"d"}]`,
		},
		"items": {
			`m: {map: "[1,2]", key: "'k' + string(item)", concurrency: 1, do: {call: f}}`,
			`m: {map: "[7,8,9]", key: "'n' + string(item)", concurrency: 1, do: {call: f}}`,
			"step_completed m[k1]", `[{"type":"runStep","id":"m[k2]","name":"f","input":2,"deployment":"d"}]`,
		},
		"an iteration": {
			`l: {loop: {until: iteration.index == 2, do: {call: f, input: 1}}}`,
			`l: {loop: {until: iteration.index == 1, do: {call: f, input: 1}}}`,
			"step_created l#2", `null`,
		},
		"the last iteration": {
			`l: {loop: {until: iteration.index == 1, do: {call: f}}}, b: {needs: l, set: "${steps.l.status}"}`,
			`l: {loop: {until: iteration.index == 2, do: {call: f}}}, b: {needs: l, set: "${steps.l.status}"}`,
			"step_completed l", `[{"type":"recordStep","id":"b","name":"b","output":"completed"},` +
				`{"type":"complete","output":{"b":"completed"}}]`,
		},
		"a wait": {
			`w: {wait: 1h}, b: {needs: w, call: f, input: 1}`, `w: {wait: {until: "${now + duration('2h')}"}}, b: {needs: w, call: f, input: 1}`,
			"wait_completed w", `[{"type":"runStep","id":"b","name":"f","input":1,"deployment":"d"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := func(steps string) *Program { return parse(t, "{flow: f, deployment: d, steps: {"+steps+"}}") }
			o, err := Trial{}.Run(program(tt.before))
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(o.Events, func(e Event) bool { return string(e.Type)+" "+e.CorrelationID == tt.known })
			got, err := program(tt.after).Answer(t.Context(), Call{Events: o.Events[:n+1]})
			if want := `{"commands":` + tt.want + `}`; n < 0 || err != nil || string(got) != want {
				t.Errorf("after %v, got\n%s, want\n%s (%v)", o.Steps(), got, want, err)
			}
		})
	}
}

// TestNowIsTheNewestEvent has what was decided at the time of an event be decided again at any time.
func TestNowIsTheNewestEvent(t *testing.T) {
	t.Parallel()
	p := parse(t, `{flow: f, deployment: d, steps: {a: {call: f, input: 1}, b: {needs: a, call: f, input: "${now}"}}}`)
	events := []Event{
		{Seq: 1, Type: entities.EventRunCreated, CreatedAt: trialStart},
		{Seq: 2, Type: entities.EventStepCreated, CorrelationID: "a", CreatedAt: trialStart.Add(1)},
		{Seq: 3, Type: entities.EventStepCompleted, CorrelationID: "a", CreatedAt: trialStart.Add(2)},
	}
	const want = `{"commands":[{"type":"runStep","id":"b","name":"f","input":"2026-01-01T00:00:00.000000002Z","deployment":"d"}]}`
	got, err := p.Answer(t.Context(), Call{Run: contract.Run{CreatedAt: trialStart}, Events: events})
	if err != nil || string(got) != want {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
}
