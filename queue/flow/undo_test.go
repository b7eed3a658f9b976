package flow

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

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
			if details := string(got.Error.Details); !strings.Contains(details, test.want) || (test.want == "") != (details == "") {
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
