package flow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestAttributesOfStartedRuns: children and runs that a step starts have the attributes that it says, by which signals
// and searches find them.
func TestAttributesOfStartedRuns(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"flow", "start"} {
		p := parse(t, "flow: f\nsteps:\n  a: {"+step+": other, input: 1, "+
			"attributes: {order: 'o-${input.id}', n: '${input.id}', none: '${input.nothing}', fixed: x}}")
		got, commands, err := Trial{Input: json.RawMessage(`{"id":7,"nothing":null}`)}.trace(p)
		want := `"attributes":{"fixed":"x","n":"7","order":"o-7"}`
		if err != nil || got.Status != entities.RunCompleted ||
			!slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(c, want) }) {
			t.Errorf("%s: %s after %q (%v), want %s", step, got.Status, commands, err, want)
		}
	}
	p := parse(t, "flow: f\nsteps:\n  a: {flow: other, attributes: {b: '${input.long}', a: '${input.long}'}, undo: {flow: x, attributes: {u: v}}}")
	long := json.RawMessage(`{"long":"` + strings.Repeat("x", 257) + `"}`)
	for range 10 { // the same refusal each time
		got, _, err := Trial{Input: long}.trace(p)
		if err != nil || got.Status != entities.RunFailed || !strings.Contains(string(mustJSON(got.Error)), `attribute \"a\" has a value of 257 bytes`) {
			t.Fatalf("%+v (%v)", got, err)
		}
	}
}
