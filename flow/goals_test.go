package flow

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestGoals runs flows with goals: what no goal needs does not begin, and failures count only where a goal needs it.
func TestGoals(t *testing.T) {
	t.Parallel()
	const goals = "flow: f\ndeployment: d\ngoals: [g]\nsteps:\n"
	for _, test := range []struct {
		name, document string
		results        map[string]Result
		output, error  string
		steps          string
	}{
		{
			name: "a failure elsewhere", document: goals + `
  a: {call: a}
  b: {call: b}
  g: {needs: [a, b], join: any, set: "${steps.b.status}"}`,
			results: map[string]Result{"a": failure("x"), "b": output("1")},
			output:  `{"g":"completed"}`, steps: "a failed, b completed, g completed",
		},
		{
			name: "what is under way is cancelled, and what nobody needs does not begin", document: goals + `
  a: {call: a}
  b: {call: b}
  c: {needs: [b], call: c}
  g: {needs: [a, c], join: any, set: 1}`,
			results: map[string]Result{"b": {After: time.Hour}, "a": output("1")},
			output:  `{"g":1}`, steps: "a completed, g completed, b failed",
		},
		{
			name: "what can be undone ends first", document: goals + `
  a: {call: a}
  b: {call: b, undo: {call: u}}
  g: {needs: [a, b], join: any, set: 1}`,
			results: map[string]Result{"b": {After: time.Hour}, "a": output("1")},
			output:  `{"g":1}`, steps: "a completed, g completed, b completed",
		},
		{
			name: "what always runs does so before the end", document: goals + `
  a: {call: a}
  g: {needs: a, set: 1}
  clean: {needs: a, join: always, call: c}
  report: {needs: [clean, g], join: always, call: r}`,
			results: map[string]Result{
				"a": output("1"), "clean": {After: time.Hour, Output: json.RawMessage("2")}, "report": output("3"),
			},
			output: `{"report":3}`, steps: "a completed, g completed, clean completed, report completed",
		},
		{
			name: "what always runs does so when a goal cannot be had", document: goals + `
  a: {call: a}
  g: {needs: a, set: 1}
  clean: {needs: a, join: always, call: c}`,
			results: map[string]Result{"a": failure("x"), "clean": output("2")},
			error:   "g cannot be had: it needs a, which failed", steps: "a failed, g skipped, clean completed",
		},
		{
			name: "all of which one would have been enough are named", document: goals + `
  a: {call: a}
  b: {call: b}
  c: {needs: [b], call: c}
  g: {needs: [a, c], join: any, set: 1}`,
			results: map[string]Result{"a": failure("x"), "b": failure("y")},
			error:   "g cannot be had: it needs a, which failed: it failed; it needs c, which needs b, which failed: it failed",
			steps:   "a failed, b failed, c skipped, g skipped",
		},
		{
			name: "every does not wait for the others", document: goals + `
  a: {call: a}
  b: {call: b}
  g: {needs: [a, b], join: every, set: 1}`,
			results: map[string]Result{"b": {After: time.Hour}, "a": failure("x")},
			error:   "g cannot be had: it needs a, which failed: it failed", steps: "a failed, g skipped, b failed",
		},
		{
			name: "none begins when nothing has completed", document: goals + `
  a: {call: a}
  g: {needs: [a], join: none, let: {one: 1, two: "${one + 1.0}"}, when: two == 2, set: "${[one, two]}"}`,
			results: map[string]Result{"a": failure("x")},
			output:  `{"g":[1,2]}`, steps: "a failed, g completed",
		},
		{
			name: "a value that does not fit", document: goals + `
  g: {set: "text", schema: {type: number}}`,
			error: "g cannot be had: it failed: the value does not fit", steps: "g failed",
		},
		{
			name: "fields of objects in a list", document: goals + `
  g: {set: "${pluck([{'a': 1}, null, {'a': 'x'}], 'a')}"}`,
			output: `{"g":[1,null,"x"]}`, steps: "g completed",
		},
		{
			name: "a field that is not there", document: goals + `
  g: {set: "${pluck([{'b': 1}], 'a')}", code: gone}`,
			error: `item 0 of the list has no "a"`, steps: "g failed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Trial{Results: test.results}.Run(parse(t, test.document))
			if err != nil {
				t.Fatal(err)
			}
			if steps := strings.Join(got.Steps(), ", "); steps != test.steps {
				t.Errorf("steps: %s, want %s", steps, test.steps)
			}
			switch {
			case test.error == "" && (got.Status != entities.RunCompleted || string(got.Output) != test.output):
				t.Errorf("%s with %s (%v), want %s", got.Status, got.Output, got.Error, test.output)
			case test.error != "" && (got.Error == nil || got.Error.Code != codeGoal || !strings.Contains(got.Error.Message, test.error)):
				t.Errorf("got %s, %v, want %q", got.Status, got.Error, test.error)
			}
		})
	}
}

// TestFaultsOfGoals has a step that no goal needs, and names that cannot be.
func TestFaultsOfGoals(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"flow: f\ngoals: [a]\nsteps:\n  a: {set: 1}\n  b: {set: 1}\n":                             "5:6: steps.b: no goal needs b",
		"flow: f\ngoals: [c]\nsteps:\n  a: {set: 1}\n":                                            `2:9: goals[0]: there is no step "c"`,
		"flow: f\nsteps:\n  a: {let: {input: 1}, set: 1}\n":                                       `"input" cannot be a name`,
		"flow: f\nsteps:\n  a: {let: {a-b: 1}, set: 1}\n":                                         `"a-b" cannot be a name`,
		"flow: f\nsteps:\n  a: {let: {b: \"${c}\", c: 1}, set: 1}\n":                              `"c" cannot be compiled`,
		"flow: f\nsteps:\n  a: {let: {b: 1}, set: 1}\n  c: {set: \"${b}\"}\n":                     `"b" cannot be compiled`,
		"flow: f\nsteps:\n  a: {set: 1}\n  b: {let: {c: \"${steps.a.output}\"}, set: \"${c}\"}\n": "add a to needs",
		"flow: f\ndeployment: d\nsteps:\n  a: {map: {}, do: {call: f}}\n":                         "an object of 1 to 8 of them",
	} {
		if _, err := Parse([]byte(document)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", document, err, want)
		}
	}
}
