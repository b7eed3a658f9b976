package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

func parse(t testing.TB, document string) *Program {
	t.Helper()
	p, err := Parse([]byte(document))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, document)
	}
	if err := fitsSchema(document); err != nil {
		t.Errorf("the schema of documents refuses it: %v\nin:\n%s", err, document)
	}
	return p
}

func output(text string) Result { return Result{Output: json.RawMessage(text)} }

func failure(code string) Result {
	return Result{Error: &contract.Failure{Message: "it failed", Code: code}}
}

const saga = `
flow: order
deployment: shop
steps:
  reserve:
    call: reserve
    undo: {call: release}
  charge:
    needs: [reserve]
    call: charge
    undo: {call: refund, input: "${undo}"}
    catch: [{codes: [declined], to: invoice}]
  invoice:
    call: invoice
    input: {because: "${error.message}", id: "${input.id}"}
  ship:
    needs: [charge]
    call: ship
    input: {paid: "${steps.charge.output}", text: "Order ${input.id}"}
output: {shipped: "${steps.ship.output}", paid: "${steps.charge.output}"}
`

// trialTest is a document, what it is given, and what must come of that.
type trialTest struct {
	name, document string
	trial          Trial
	steps          []string
	status         entities.RunStatus
	output         string
	code           string
}

func runTrials(t *testing.T, tests []trialTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := test.trial.Run(parse(t, test.document))
			if err != nil {
				t.Fatalf("%v after %v", err, got.Steps())
			}
			if diff := cmp.Diff(test.steps, got.Steps()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			code := ""
			if got.Error != nil {
				code = got.Error.Code
			}
			if got.Status != test.status || string(got.Output) != test.output || code != test.code {
				t.Errorf("%s, %s, %+v; want %s, %s, %q", got.Status, got.Output, got.Error, test.status, test.output, test.code)
			}
		})
	}
}

// TestRuns runs documents with given results. What is expected follows from docs/flows.md.
func TestRuns(t *testing.T) {
	t.Parallel()
	runTrials(t, []trialTest{
		{
			name:     "an open child undoes what it did before what it needed is undone",
			document: "flow: f\ndeployment: d\nsteps:\n  a: {call: a, undo: {call: u}}\n  o: {needs: a, flow: kid}\n  z: {needs: a, call: z}\n",
			trial:    Trial{Results: map[string]Result{"z": failure("x"), "o": {After: time.Hour}}},
			steps:    []string{"a completed", "z failed", "o~cancel completed", "o failed", "a~undo completed"}, status: entities.RunFailed, code: "x",
		},
		{
			name:     "a line of steps",
			document: saga,
			trial: Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{
				"charge": output(`{"sum":10}`), "ship": output(`"T1"`),
			}},
			steps:  []string{"reserve completed", "charge completed", "invoice skipped", "ship completed"},
			status: entities.RunCompleted, output: `{"shipped":"T1","paid":{"sum":10}}`,
		},
		{
			name:     "an output that fails is a failure like others",
			document: "flow: f\ndeployment: d\nsteps:\n  a: {call: a, undo: {call: u}}\n  z: {needs: a, call: z, join: always}\noutput: '${int(input.n) / 0}'\n",
			trial:    Trial{Input: json.RawMessage(`{"n":1}`)},
			steps:    []string{"a completed", "z completed", "a~undo completed"}, status: entities.RunFailed, code: "flow.expression",
		},
		{
			name:     "a run that no request has started has none to answer",
			document: "flow: f\ndeployment: d\nsteps:\n  a: {respond: {status: 204}}\n",
			steps:    []string{"a failed"}, status: entities.RunFailed, code: "no_request",
		},
		{
			name:     "a run that a request has started answers it",
			document: "flow: f\ndeployment: d\nsteps:\n  a: {respond: {status: 204}}\n",
			trial:    Trial{Attributes: map[string]string{trigger.AttributeEvent: "hreq_01M8K021KP78B46MZW75TGWKEK"}},
			steps:    []string{"a completed"}, status: entities.RunCompleted, output: `{"a":null}`,
		},
		{
			name:     "a caught failure",
			document: saga,
			trial: Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{
				"charge": failure("declined"), "invoice": output(`{"sum":10}`), "ship": output(`"T1"`),
			}},
			steps:  []string{"reserve completed", "charge failed", "invoice completed", "ship completed"},
			status: entities.RunCompleted, output: `{"shipped":"T1","paid":{"sum":10}}`,
		},
		{
			name:     "another failure is not caught",
			document: saga,
			trial:    Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{"charge": failure("broken")}},
			steps:    []string{"reserve completed", "charge failed", "reserve~undo completed"},
			status:   entities.RunFailed, code: "broken",
		},
		{
			name:     "a failure at the end is undone in reverse order",
			document: saga,
			trial:    Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{"ship": failure("lost")}},
			steps: []string{
				"reserve completed", "charge completed", "invoice skipped", "ship failed", "charge~undo completed",
				"reserve~undo completed",
			},
			status: entities.RunFailed, code: "lost",
		},
		{
			name:     "an unknown outcome is undone",
			document: saga,
			trial:    Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{"charge": failure("timeout")}},
			steps:    []string{"reserve completed", "charge failed", "charge~undo completed", "reserve~undo completed"},
			status:   entities.RunFailed, code: "timeout",
		},
		{
			name:     "undo that fails does not keep the others",
			document: saga,
			trial: Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{
				"ship": failure("lost"), "charge~undo": failure("no"),
			}},
			steps: []string{
				"reserve completed", "charge completed", "invoice skipped", "ship failed", "charge~undo failed",
				"reserve~undo completed",
			},
			status: entities.RunFailed, code: "lost",
		},
		{
			name: "branches and their join",
			document: `
flow: f
deployment: d
steps:
  big: {when: "input.n > 10", call: big}
  small: {when: "input.n <= 10", call: small}
  only: {needs: [big], call: only}
  joined: {needs: [big, small], call: joined}
`,
			trial:  Trial{Input: json.RawMessage(`{"n": 3}`), Results: map[string]Result{"joined": output(`1`)}},
			steps:  []string{"big skipped", "only skipped", "small completed", "joined completed"},
			status: entities.RunCompleted, output: `{"only":null,"joined":1}`,
		},
		{
			name: "an expression that cannot be evaluated fails its step",
			document: `
flow: f
deployment: d
steps:
  a: {when: "input.missing > 10", call: big}
`,
			trial:  Trial{Input: json.RawMessage(`{}`)},
			steps:  []string{"a failed"},
			status: entities.RunFailed, code: "flow.expression",
		},
		{
			name: "a step that always runs",
			document: `
flow: f
deployment: d
steps:
  work: {call: work}
  next: {needs: [work], call: next}
  tell: {needs: [next], join: always, call: tell, input: {failed: "${steps.work.failed}"}}
`,
			trial:  Trial{Results: map[string]Result{"work": failure("x")}},
			steps:  []string{"work failed", "tell completed"},
			status: entities.RunFailed, code: "x",
		},
		{
			name: "a step that always runs stands before what it needs, which is cancelled",
			document: `
flow: f
deployment: d
steps:
  tell: {needs: [slow], join: always, call: tell}
  slow: {wait: 1h}
  work: {call: work}
`,
			trial:  Trial{Results: map[string]Result{"work": failure("x")}},
			steps:  []string{"work failed", "slow cancelled", "tell completed"},
			status: entities.RunFailed, code: "x",
		},
		{
			name: "an undo whose input cannot be evaluated does not keep the others",
			document: `
flow: f
deployment: d
steps:
  a: {call: a, undo: {call: u}}
  b: {needs: [a], call: b, undo: {call: u, input: "${undo.output.missing}"}}
  c: {needs: [b], call: c}
`,
			trial:  Trial{Results: map[string]Result{"c": failure("x")}},
			steps:  []string{"a completed", "b completed", "c failed", "b~undo failed", "a~undo completed"},
			status: entities.RunFailed, code: "x",
		},
		{
			name: "until must be a time that a wait can have",
			document: `
flow: f
steps:
  none: {wait: {until: "${null}"}, catch: [{codes: [flow.expression]}]}
  late: {wait: {until: "${now + duration('87601h')}"}, catch: [{codes: [flow.expression]}]}
  soon: {wait: {until: "${now + duration('87599h')}"}}
  early: {wait: {until: "1969-12-31T00:00:00Z"}, catch: [{codes: [flow.expression]}]}
output: 1
`,
			steps:  []string{"none failed", "late failed", "early failed", "soon completed"},
			status: entities.RunCompleted, output: "1",
		},
		{
			name: "the code of a function that no code can be is left out",
			document: `
flow: f
deployment: d
steps:
  a: {call: a}
`,
			trial:  Trial{Results: map[string]Result{"a": failure("x\x01")}},
			steps:  []string{"a failed"},
			status: entities.RunFailed,
		},
		{
			name: "values, waits and signals",
			document: `
flow: f
steps:
  sum: {set: "${input.a + input.b}"}
  pause: {needs: [sum], wait: 1h}
  paid: {needs: [pause], signal: {name: paid, within: 2h}}
  late: {needs: [pause], signal: {name: never, within: 1h}, catch: [{codes: [wait_timeout]}]}
output: {sum: "${steps.sum.output}", paid: "${steps.paid.output}", late: "${steps.late.failed}"}
`,
			trial: Trial{
				Input: json.RawMessage(`{"a":1,"b":2}`), Signals: map[string]json.RawMessage{"paid": json.RawMessage(`{"by":"card"}`)},
			},
			steps: []string{
				"sum completed", "pause completed", "paid received", "paid disposed", "paid~within cancelled",
				"late~within completed",
			},
			status: entities.RunCompleted, output: `{"sum":3,"paid":{"by":"card"},"late":true}`,
		},
		{
			name: "any of two",
			document: `
flow: f
deployment: d
steps:
  a: {call: a}
  b: {call: b, catch: [{then: continue}]}
  first: {needs: [a, b], join: any, set: 7}
`,
			trial:  Trial{Results: map[string]Result{"b": failure("x")}},
			steps:  []string{"a completed", "first completed", "b failed"},
			status: entities.RunCompleted, output: `{"first":7}`,
		},
		{
			name: "a failure that ends the run well",
			document: `
flow: f
deployment: d
steps:
  a: {call: a, catch: [{codes: [gone], to: b, then: complete}]}
  b: {set: "${error.code}"}
  c: {needs: [a], call: c}
`,
			trial:  Trial{Results: map[string]Result{"a": failure("gone")}},
			steps:  []string{"a failed", "b completed"},
			status: entities.RunCompleted, output: `"gone"`,
		},
		{
			name: "a failure after a last step",
			document: `
flow: f
deployment: d
steps:
  a: {call: a, catch: [{to: b, then: fail}]}
  b: {call: b}
  c: {needs: [a], call: c}
`,
			trial:  Trial{Results: map[string]Result{"a": failure("gone")}},
			steps:  []string{"a failed", "b completed"},
			status: entities.RunFailed, code: "gone",
		},
		{
			name: "an early end",
			document: `
flow: f
deployment: d
steps:
  known: {when: "has(input.known)", complete: "${input.known}"}
  work: {call: work}
`,
			trial:  Trial{Input: json.RawMessage(`{"known": {"big":9007199254740993}}`)},
			status: entities.RunCompleted, output: `{"big":9007199254740993}`,
		},
	})
}

// TestDecisionsFitInAnswers tests the longest decision: all signals begin, and end since the last step fails.
func TestDecisionsFitInAnswers(t *testing.T) {
	t.Parallel()
	var document strings.Builder
	document.WriteString("flow: f\nsteps:\n")
	for i := range MaxSteps - 1 {
		fmt.Fprintf(&document, "  s%d: {signal: {name: s, within: 1h}}\n", i)
	}
	document.WriteString("  last: {fail: {message: no}}\n  never: {set: 1}\n")
	if _, err := Parse([]byte(document.String())); !errors.Is(err, ErrFaults) {
		t.Errorf("%d steps: %v, want faults", MaxSteps+1, err)
	}
	p := parse(t, strings.TrimSuffix(document.String(), "  never: {set: 1}\n"))
	text, err := p.Answer(t.Context(), Call{})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Commands []json.RawMessage `json:"commands"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	if n := len(answer.Commands); n < MaxSteps || n > contract.MaxCommands || 4*MaxSteps+1 > contract.MaxCommands {
		t.Errorf("%d commands; the limit is %d", n, contract.MaxCommands)
	}
}

// TestFailuresHaveMessages tests a message that is empty.
func TestFailuresHaveMessages(t *testing.T) {
	t.Parallel()
	got, err := Trial{Input: json.RawMessage(`""`)}.Run(parse(t, `
flow: f
steps: {a: {fail: {message: "${input}", code: x}}}
`))
	if err != nil || got.Error == nil || got.Error.Message == "" || got.Error.Code != "x" {
		t.Errorf("%+v (%v)", got.Error, err)
	}
}

// TestValuesAreLimited tests values that are larger together than a decision may make, though each is small.
func TestValuesAreLimited(t *testing.T) {
	t.Parallel()
	large := json.RawMessage(`"` + strings.Repeat("x", maxMade/4) + `"`)
	for _, test := range []struct {
		name, steps string
		want        []string
	}{
		{"in a list", `{a: {set: "${[input, input, input, input]}"}}`, []string{"a failed"}},
		{
			"nested lists", `{a: {set: "${[[[input, input], [input, input]], [[input, input], [input, input]]]}"}}`,
			[]string{"a failed"},
		},
		{"in a text", `{a: {set: "${input} ${input} ${input} ${input}"}}`, []string{"a failed"}},
		{"in an object", `{a: {set: {b: "${input}", c: "${input}", d: ["${input}", "${input}"]}}}`, []string{"a failed"}},
		{
			"of several steps",
			`{a: {set: "${input}"}, b: {set: "${input}"}, c: {call: c}, d: {call: d, catch: [{codes: [flow.expression]}]}}`,
			[]string{"a completed", "b completed", "d failed", "c completed"},
		},
		{
			"that undo gets, in a later decision",
			`{a: {call: a, undo: {call: u}}, b: {needs: a, call: b, input: 1, undo: {call: u, input: "${input}"}},
			  c: {needs: a, call: c, input: 1, undo: {call: u, input: "${[input, input]}"}},
			  d: {needs: a, call: d, input: 1, undo: {call: u, input: "${input}"}},
			  e: {needs: [b, c, d], fail: {message: no}}}`,
			[]string{
				"a completed", "b completed", "c completed", "d completed", "e failed", "b~undo completed", "c~undo completed",
				"d~undo completed", "a~undo completed",
			},
		},
	} {
		got, err := Trial{Input: large}.Run(parse(t, "flow: f\ndeployment: d\noutput: 1\nsteps: "+test.steps))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, got.Steps()); diff != "" {
			t.Errorf("%s: steps (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestAnswersStop tests a context that has ended: there are no commands, rather than failures.
func TestAnswersStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, err := parse(t, `{flow: f, steps: {a: {set: "${1 + 1}"}}}`).Answer(ctx, Call{})
	if !errors.Is(err, context.Canceled) || text != nil {
		t.Errorf("got %s (%v)", text, err)
	}
}

// TestAnswersAreTheSame asks again at each moment of a run, with what the log had then: the commands are those that
// were carried out, and what the log has already is not asked for again.
func TestAnswersAreTheSame(t *testing.T) {
	t.Parallel()
	faulty := parse(t, `{flow: f, steps: {a: {http: {url: "https://example.com",
		headers: {A: "${input.a.x}", B: "${input.b.x}", C: "${input.c.x}", D: "${input.d.x}"}}}}}`)
	for range 20 {
		text, err := faulty.Answer(t.Context(), Call{})
		if err != nil || !strings.Contains(string(text), "header A: ") {
			t.Errorf("got %s (%v), want the fault of the first header", text, err)
		}
	}
	p := parse(t, saga)
	got, err := Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{"ship": failure("lost")}}.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n < len(got.Events); n++ {
		call := Call{Run: contract.Run{Workflow: "order"}, Events: got.Events[:n]}
		one, err1 := p.Answer(t.Context(), call)
		two, err2 := p.Answer(t.Context(), call)
		if err1 != nil || err2 != nil || string(one) != string(two) {
			t.Errorf("after %d events: %s, then %s (%v, %v)", n, one, two, err1, err2)
		}
		for _, e := range got.Events[:n] {
			if e.Type == entities.EventStepCreated && strings.Contains(string(one), `"runStep","id":"`+e.CorrelationID+`"`) {
				t.Errorf("after %d events, %s is asked for again: %s", n, e.CorrelationID, one)
			}
		}
	}
}
