package flow

import (
	"encoding/json"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// TestErrorsNameTheStep: whatever fails a step that fails the run, the error of the run names the step, and keeps the
// details that the step's error has. An error that is not of a step names none.
func TestErrorsNameTheStep(t *testing.T) {
	t.Parallel()
	const head = "flow: f\ndeployment: d\nsteps:\n  one: {set: 1}\n"
	declined := Result{Error: &contract.Failure{Message: "no", Code: "declined", Details: json.RawMessage(`{"bank":7}`)}}
	for name, test := range map[string]struct {
		steps, want string
		results     map[string]Result
	}{
		"an expression":    {steps: "  two: {set: '${input.x}'}\n", want: `{"step":"two"}`},
		"an input":         {steps: "  two: {call: c, input: '${input.x}'}\n", want: `{"step":"two"}`},
		"a condition":      {steps: "  two: {set: 2, when: input.x}\n", want: `{"step":"two"}`},
		"a list":           {steps: "  two: {map: input.x, do: {call: c}}\n", want: `{"step":"two"}`},
		"an item":          {steps: "  two: {map: '[1]', do: {call: c, input: '${input.x}'}}\n", want: `{"step":"two"}`},
		"an address":       {steps: "  two: {http: 'https://example.com/${input.x}'}\n", want: `{"step":"two"}`},
		"a schema":         {steps: "  two: {set: 1, schema: {type: string}}\n", want: `{"step":"two"}`},
		"a call":           {steps: "  two: {call: c}\n", results: map[string]Result{"two": declined}, want: `{"of":{"bank":7},"step":"two"}`},
		"a child":          {steps: "  two: {flow: kid}\n", results: map[string]Result{"two": declined}, want: `{"of":{"bank":7},"step":"two"}`},
		"a fail":           {steps: "  two: {fail: {message: no}}\n", want: `{"step":"two"}`},
		"one that stands":  {steps: "  two: {call: c, catch: [{to: alt}]}\n  alt: {set: '${input.x}'}\n", results: map[string]Result{"two": declined}, want: `{"step":"alt"}`},
		"one that returns": {steps: "  two: {call: c, catch: [{to: alt, then: fail}]}\n  alt: {set: 1}\n", results: map[string]Result{"two": declined}, want: `{"of":{"bank":7},"step":"two"}`},
		"with undo": {
			steps: "  two: {call: c, needs: [did]}\n  did: {call: c, undo: {call: u}}\n", results: map[string]Result{"two": declined},
			want: `{"of":{"bank":7},"step":"two","undo":{"done":["did"],"failed":[]}}`,
		},
		"an output":    {steps: "output: '${input.x}'\n", want: ``},
		"a run's time": {steps: "  two: {wait: 2h}\ntimeout: 1h\n", want: ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Trial{Input: json.RawMessage(`{}`), Results: test.results}.Run(parse(t, head+test.steps))
			if err != nil || got.Status != entities.RunFailed {
				t.Fatalf("%s (%v) after %v", got.Status, err, got.Steps())
			}
			if details := string(got.Error.Details); details != test.want {
				t.Errorf("%s: details %s, want %s", got.Error.Message, details, test.want)
			}
		})
	}
}
