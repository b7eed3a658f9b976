package flow

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// TestUndoIsTold: the error names what was undone and what could not be, in steps that undid it before they failed, too.
func TestUndoIsTold(t *testing.T) {
	t.Parallel()
	const done, failed = `"undo":{"done":["m"],"failed":[]}`, `"undo":{"done":[],"failed":["m"]}`
	broken := map[string]Result{"z": failure("x"), "m[1]": failure("x")}
	for name, test := range map[string]struct{ step, stuck, want string }{
		"a failed map":     {"map: '[1, 2]', do: {call: f, undo: {call: u}}", "", done},
		"it is stuck":      {"map: '[1, 2]', do: {call: f, undo: {call: u}}", "m[0]~undo", failed},
		"a failed item":    {"map: '[1]', do: {steps: {a: {call: f, undo: {call: u}}, b: {needs: a, fail: {message: x}}}}", "", done},
		"it is stuck, too": {"map: '[1]', do: {steps: {a: {call: f, undo: {call: u}}, b: {needs: a, fail: {message: x}}}}", "m[0].a~undo", failed},
		"a tolerated item": {"map: '[1]', tolerate: 1, do: {steps: {a: {call: f, undo: {call: u}}, b: {needs: a, fail: {message: x}}}}", "m[0].a~undo", failed},
		"a nested map":     {"map: '[[1, 2]]', do: {steps: {n: {map: item, do: {call: f, undo: {call: u}}}}}", "m[0].n[0]~undo", failed},
		"a failed loop":    {"loop: {until: 'false', max: 1, do: {call: f, undo: {call: u}}}", "m#1~undo", failed},
		"a plan":           {"plan: p, allow: {calls: [f]}", "m.a~undo", failed},
		"a completed map":  {"map: '[1]', do: {call: f, undo: {call: u}}", "m[0]~undo", failed},
		"nothing to undo":  {"map: '[1, 2]', do: {call: f}", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := maps.Clone(broken)
			results["m#1"] = output(`{"steps":{"a":{"call":"f","undo":{"call":"f"}},"b":{"needs":"a","fail":{"message":"x"}}}}`)
			results["m[0].n[1]"] = failure("x")
			if test.stuck != "" {
				results[test.stuck] = failure("stuck")
			}
			p := parse(t, "flow: f\ndeployment: d\nsteps:\n  m: {"+test.step+"}\n  z: {needs: m, call: z}\n")
			got, err := Trial{Results: results}.Run(p)
			if err != nil || got.Status != entities.RunFailed {
				t.Fatalf("%s (%v) after %v", got.Status, err, got.Steps())
			}
			if details := string(got.Error.Details); !strings.Contains(details, test.want) || (test.want == "") == strings.Contains(details, `"undo"`) {
				t.Errorf("details %s, want %s; steps %v", details, test.want, got.Steps())
			}
		})
	}
}

// TestUndoSeesTheStep tests what undoing a step gets.
func TestUndoSeesTheStep(t *testing.T) {
	t.Parallel()
	got, err := Trial{Input: json.RawMessage(`{"id":7}`), Results: map[string]Result{
		"ship": failure("lost"), "charge": output(`{"sum":10}`),
	}}.Run(parse(t, saga))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(got.Events, func(e Event) bool { return e.CorrelationID == "charge~undo" })
	want := `{"error":null,"input":{"id":7},"outcome":"completed","output":{"sum":10}}`
	if input := string(got.Events[i].Payload); input != want {
		t.Errorf("input of the undo: %s; want %s", input, want)
	}
	if details := string(got.Error.Details); !strings.Contains(details, `"done":["reserve","charge"]`) {
		t.Errorf("details %s", details)
	}
}

// TestEarlierAttemptsAreUndone tests steps whose last attempt did nothing for sure, though an earlier one may have.
func TestEarlierAttemptsAreUndone(t *testing.T) {
	t.Parallel()
	p := parse(t, "flow: f\ndeployment: d\nsteps:\n  a: {call: a, undo: {call: u}}\n")
	event := func(typ entities.EventType, code string) Event {
		return Event{Type: typ, CorrelationID: "a", Payload: contract.Payload("it failed", code)}
	}
	started := event(entities.EventStepStarted, "")
	for name, test := range map[string]struct {
		attempts []Event
		undone   bool
	}{
		"one attempt":    {[]Event{started}, false},
		"a known result": {[]Event{started, event(entities.EventStepRetrying, "x"), started}, false},
		"a time limit":   {[]Event{started, event(entities.EventStepRetrying, contract.CodeTimeout), started}, true},
		"no answer": {[]Event{
			started, event(entities.EventStepRetrying, contract.CodeNoAnswer), started,
			event(entities.EventStepRetrying, "x"), started,
		}, true},
		"a refused output": {[]Event{started, event(entities.EventStepRetrying, "number_out_of_range"), started}, true},
		"no result":        {[]Event{started, started}, true},
	} {
		log := slices.Concat([]Event{{Type: entities.EventRunCreated}, event(entities.EventStepCreated, "")}, test.attempts,
			[]Event{event(entities.EventStepFailed, "x")})
		text, err := p.Answer(t.Context(), Call{Events: log})
		answer := string(text)
		if err != nil || strings.Contains(answer, `"a~undo"`) != test.undone ||
			test.undone && !strings.Contains(answer, `"outcome":"unknown"`) {
			t.Errorf("%s: %s (%v); want undone: %v", name, answer, err, test.undone)
		}
	}
}

// TestPausesHoldUpNoUndo tests runs that fail while a step that can be undone waits for its next attempt.
func TestPausesHoldUpNoUndo(t *testing.T) {
	t.Parallel()
	p := parse(t, "flow: f\ndeployment: d\nsteps:\n  z: {call: z, undo: {call: u}}\n  a: {needs: z, call: a, undo: {call: u}}\n"+
		"  b: {needs: z, call: b}\n")
	event := func(id string, typ entities.EventType, code string) Event {
		return Event{Type: typ, CorrelationID: id, Payload: contract.Payload("it failed", code)}
	}
	started := event("a", entities.EventStepStarted, "")
	for name, test := range map[string]struct {
		attempts []Event
		want     []string // commands
	}{
		"not begun": {nil, nil},
		"under way": {[]Event{started}, nil},
		"a pause after a known result": {
			[]Event{started, event("a", entities.EventStepRetrying, "x")}, []string{"cancelStep a", "runStep z~undo"},
		},
		"a pause after an attempt of which nobody knows": {
			[]Event{started, event("a", entities.EventStepRetrying, contract.CodeTimeout)},
			[]string{"cancelStep a", "runStep a~undo"},
		},
		"under way again": {[]Event{started, event("a", entities.EventStepRetrying, "x"), started}, nil},
	} {
		log := slices.Concat([]Event{
			{Type: entities.EventRunCreated},
			event("z", entities.EventStepCreated, ""), {Type: entities.EventStepCompleted, CorrelationID: "z"},
			event("a", entities.EventStepCreated, ""), event("b", entities.EventStepCreated, ""),
		}, test.attempts)
		for i := range log {
			log[i].Seq = int64(i + 1)
		}
		for _, why := range []Event{event("b", entities.EventStepFailed, "x"), {Type: entities.EventCancelRequested}} {
			why.Seq = int64(len(log) + 1)
			text, err := p.Answer(t.Context(), Call{Events: append(slices.Clone(log), why)})
			var answer struct{ Commands []struct{ Type, ID string } }
			if err == nil {
				err = json.Unmarshal(text, &answer)
			}
			var got []string
			for _, c := range answer.Commands {
				if c.ID != "b" { // which is cancelled, too
					got = append(got, c.Type+" "+c.ID)
				}
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s, then %s: got %v (%v), want %v", name, why.Type, got, err, test.want)
			}
		}
	}
}
