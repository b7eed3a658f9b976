package flow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestPlansAreChecked has a planner return fragments with a fault each: it gets each back with the fault, and the run
// completes once a fragment is valid.
func TestPlansAreChecked(t *testing.T) {
	t.Parallel()
	faulty := []struct{ fragment, want string }{
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
	}
	p := parse(t, `
flow: f
deployment: d
steps:
  before: {set: 1}
  p: {needs: before, plan: think, repairs: 20, allow: {calls: [get], maxSteps: 3}}
output: "${steps.p.output}"
`)
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

// TestLongTurnsGoOn tests turns with more to decide than an answer may have: nothing is under way that would have the run
// called again, but the wait that asks for it.
func TestLongTurnsGoOn(t *testing.T) {
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
		for _, n := range got.turns {
			if n-last > 1100 {
				t.Errorf("%d events of one turn of\n%s", n-last, document)
			}
			last = n
		}
	}
}
