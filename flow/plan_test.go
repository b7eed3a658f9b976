package flow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// faultyFragment is what a planner returns, and a part of the faults that it gets back.
type faultyFragment struct{ fragment, want string }

// TestPlansAreChecked has a planner return fragments with a fault each: it gets each back with the fault, and the run
// completes once a fragment is valid.
func TestPlansAreChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 128)
	faulty := []faultyFragment{
		{`7`, "want an object"},
		{`{}`, `want \"steps\"`},
		{`{"steps":{}}`, `want \"steps\"`},
		{`{"steps":{"a":{}}}`, "want one of call"},
		{`{"steps":{"a":{"cal":"get"}}}`, "do you mean"},
		{`{"steps":{"a":{"call":"delete"}}}`, "does not allow the call"},
		{`{"steps":{"a":{"call":"get","deployment":"other"}}}`, "cannot name a deployment"},
		{`{"steps":{"a":{"call":"get","undo":{"call":"delete"}}}}`, "does not allow the call"},
		{`{"steps":{"a":{"flow":"get"}}}`, "does not allow the flow"},
		{`{"steps":{"a":{"plan":"get","allow":{"calls":["get"]}}}}`, "cannot return a plan"},
		{`{"steps":{"a":{"complete":1}}}`, "cannot complete the run"},
		{`{"steps":{"a":{"call":"get","needs":"z"}}}`, "there is no step"},
		{`{"steps":{"a":{"call":"get","needs":"b"},"b":{"call":"get","needs":"a"}}}`, "wait for each other"},
		{`{"steps":{"a":{"call":"get","input":"${steps.b.output}"},"b":{"call":"get"}}}`, "add b to needs"},
		{`{"steps":{"a":{"call":"get","input":"${steps.before.output}"}}}`, "does not exist"},
		{`{"steps":{"a":{"call":"get","when":"1 +"}}}`, "cannot be compiled"},
		{`{"steps":{"a":{"map":"[1]","do":{"call":"delete"}}}}`, "does not allow the call"},
		{`{"steps":{"a":{"call":"get"},"b":{"map":"[1]","do":{"steps":{"c":{"set":1},"d":{"set":1}}}}}}`, "the limit is 3"},
		{`{"steps":{"a":{"call":"get","retry":{"maxAttempts":0}}}}`, "from 1 to 1000"},
		{`{"steps":{"a":{"call":"get"}},"output":"${item}"}`, "only in the body of a map"},
		{`null`, "want an object"},
		{`"{steps: {a: {call: get}}}"`, "want an object"},
		{`{"steps":[{"call":"get"}]}`, "an object with at least one step"},
		{`{"steps":{"a":{"call":"get"}},"goals":["a"]}`, `no field \"goals\" here`},
		{`{"steps":{"a":{"call":"get"},"a":{"call":"get"}}}`, "is there twice"},
		{`{"steps":{"a b":{"call":"get"}}}`, "is not 1 to 128 letters"},
		{`{"steps":{"a":{"call":"get","set":1}}}`, "this one is a call already"},
		{`{"steps":{"a":{"call":7}}}`, "want a text instead of a number"},
		{`{"steps":{"a":{"call":"get","needs":"a"}}}`, "a needs a"},
		{`{"steps":{"a":{"call":"get","catch":[{"to":"a"}]}}}`, "leads to a itself"},
		{`{"steps":{"a":{"call":"get","catch":[{"to":"z"}]}}}`, "steps.a.catch[0].to"},
		{`{"steps":{"a":{"call":"get","catch":[{"then":"complete"}]}}}`, "cannot complete the run"},
		{`{"steps":{"a":{"call":"get","catch":[{"to":"b"}]},"b":{"call":"get","catch":[{"to":"a"}]}}}`, "a needs b needs a"},
		{`{"steps":{"a":{"map":"[1]","do":{"call":"get"},"undo":{"call":"get"}}}}`, "only call, flow and http can be undone"},
		{`{"steps":{"a":{"set":{"x":"${1}"},"schema":{"type":7}}}}`, "it is not a JSON Schema"},
		{`{"steps":{"a":{"flow":"kid","deployment":"kid@1"}}}`, "or its deployment"},
		{`{"steps":{"a":{"loop":{"do":{"call":"get"}}}}}`, "the condition that ends the loop"},
		{`{"steps":{"a":{"wait":"soon"}}}`, "want a duration"},
		{`{"steps":{"a":{"call":"get","timeout":"11y"}}}`, "want a duration"},
		{`{"steps":{"a":` + strings.Repeat(`{"map":"[1]","do":{"steps":{"a":`, 4) + `{"call":"get"}` + strings.Repeat("}}}", 4) + `}}`, "nested"},
		{`{"steps":{"` + long + `":{"map":"[1]","do":{"steps":{"` + long + `":{"call":"get"}}}}}}`, "the limit is 255"},
	}
	p := parse(t, `
flow: f
deployment: d
steps:
  before: {set: 1}
  p: {needs: before, plan: think, repairs: 20, allow: {calls: [get], flows: [kid], maxSteps: 3}}
output: "${steps.p.output}"
`)
	for faulty := range slices.Chunk(faulty, maxRepairs) {
		checkRepairs(t, p, faulty)
	}
}

// checkRepairs has a planner return the fragments, and then a valid one.
func checkRepairs(t *testing.T, p *Program, faulty []faultyFragment) {
	t.Helper()
	results := map[string]Result{"p.a": output(`"got"`)}
	for i, f := range faulty {
		results["p#"+itoa(i+1)] = output(f.fragment)
	}
	results["p#"+itoa(len(faulty)+1)] = output(`{"steps":{"a":{"call":"get"}},"output":"${steps.a.output}"}`)
	got, err := Trial{Results: results}.Run(p)
	if err != nil || got.Status != entities.RunCompleted || string(got.Output) != `"got"` {
		t.Fatalf("%s, %s, %+v (%v) after %v", got.Status, got.Output, got.Error, err, got.Steps())
	}
	inputs := map[string]string{}
	for _, e := range got.Events {
		if e.Type == entities.EventStepCreated {
			inputs[e.CorrelationID] = string(e.Payload)
		}
	}
	for i, f := range faulty {
		input := inputs["p#"+itoa(i+2)]
		if !strings.Contains(input, f.want) || !strings.Contains(input, `"line":1,"column":`) {
			t.Errorf("after %s, the planner gets %s; want %q", f.fragment, input, f.want)
		}
	}
}

// TestPlansReachNobodyElse: what a plan cannot allow by name is refused.
func TestPlansReachNobodyElse(t *testing.T) {
	t.Parallel()
	p := parse(t, "{flow: f, deployment: d, steps: {p: {plan: think, repairs: 0, allow: {calls: [get]}}}}")
	for kind, step := range map[string]string{
		"http":  `{"http":{"url":"https://x.test"}}`,
		"start": `{"start":"other"}`, "emit": `{"emit":{"signal":"s"}}`, "hook": `{"hook":{}}`,
		"approval": `{"approval":{"title":"t"}}`,
	} {
		fragment := output(`{"steps":{"a":` + step + `}}`)
		got, err := Trial{Results: map[string]Result{"p#1": fragment}}.Run(p)
		if err != nil || got.Error == nil || !strings.Contains(got.Error.Message, "of the kind "+kind) {
			t.Errorf("%s: %s, %+v, %v", kind, got.Status, got.Error, err)
		}
	}
}

func itoa(n int) string { return string(mustJSON(n)) }

// TestLongDecisionsGoOn tests decisions with more to decide than an answer may have: nothing is under way that would
// have the run called again, but the wait that asks for it.
func TestLongDecisionsGoOn(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		"flow: f\nsteps: {l: {loop: {do: {steps: {a: {set: 1}}}, while: iteration.index < 2000, max: 2000}}}\noutput: 2000\n",
		"flow: f\nsteps: {m: {map: input, concurrency: 1000, do: {steps: {a: {set: 1}, b: {signal: {name: s, within: 1h}}}}}}\noutput: 2000\n",
	} {
		p := parse(t, document)
		got, err := Trial{Input: numbers(2000), Signals: map[string]json.RawMessage{"s": []byte("1")}}.Run(p)
		if err != nil || string(got.Output) != "2000" {
			t.Fatalf("%s, %+v (%v) after %d events of\n%s", got.Status, got.Error, err, len(got.Events), document)
		}
		last := 0
		for _, n := range got.decisions {
			if n-last > 1100 {
				t.Errorf("%d events of one decision of\n%s", n-last, document)
			}
			last = n
		}
	}
}
