package flow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestLimitsOfSteps: calls and requests, also those that undo, name the limits of which they need slots.
func TestLimitsOfSteps(t *testing.T) {
	t.Parallel()
	const many = "limits: [mail, {name: stripe, key: 'c-${input.id}', tenant: '${input.id}', cost: 2}], priority: -10m"
	p := parse(t, "flow: f\ndeployment: d\nsteps:\n  a: {call: c, limits: mail, undo: {call: u, "+many+"}}\n"+
		"  b: {needs: a, http: {url: 'https://example.com'}, "+many+"}\n  c: {needs: b, fail: {message: m}}")
	got, commands, err := Trial{Input: json.RawMessage(`{"id":7}`)}.trace(p)
	if err != nil || got.Status != entities.RunFailed {
		t.Fatal(got.Status, err)
	}
	const two = `"limits":[{"name":"mail"},{"name":"stripe","key":"c-7","tenant":"7","cost":2}]`
	for id, want := range map[string]string{"a": `"limits":[{"name":"mail"}]`, "a~undo": two, "b": two} {
		has := func(c string) bool { return strings.Contains(c, `"id":"`+id+`"`) && strings.Contains(c, want) }
		if !slices.ContainsFunc(commands, has) {
			t.Errorf("%s: no %s in %q", id, want, commands)
		}
	}
	if n := strings.Count(strings.Join(commands, ""), `"priority":"-10m0s"`); n != 2 {
		t.Errorf("%d commands have the priority: %q", n, commands)
	}
	got, _, err = Trial{Input: json.RawMessage(`{"id":"` + strings.Repeat("x", 3000) + `"}`)}.trace(p)
	if err != nil || got.Error == nil || got.Error.Code != codeExpression || !strings.Contains(got.Error.Message, "key of limit stripe") {
		t.Errorf("a key that is too long: %+v (%v)", got.Error, err)
	}
}
