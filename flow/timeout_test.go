package flow

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// TestTimeoutOfRuns: a run whose document limits its time fails then, and is undone, unless it has failed before. One
// that ends in time does as without.
func TestTimeoutOfRuns(t *testing.T) {
	t.Parallel()
	const head = "flow: f\ndeployment: d\ntimeout: 1h\n"
	for name, test := range map[string]struct {
		document, code, steps string
		results               map[string]Result
	}{
		"in time": {
			document: "steps: {a: {call: a}}", steps: "a completed",
			results: map[string]Result{"a": {After: 59 * time.Minute}},
		},
		"over": {
			document: "steps:\n  a: {call: a, undo: {call: u}}\n  b: {needs: a, call: b}\n  c: {needs: b, call: c}",
			results:  map[string]Result{"b": {After: 2 * time.Hour}},
			code:     contract.CodeTimeout, steps: "a completed, ~timeout completed, b failed, a~undo completed",
		},
		"nothing under way": {
			document: "steps:\n  a: {signal: s}", code: contract.CodeTimeout, steps: "~timeout completed",
		},
		"a failure before counts": {
			document: "steps:\n  a: {call: a, undo: {call: u}}\n  b: {needs: a, fail: {message: m, code: own}}",
			results:  map[string]Result{"a~undo": {After: 2 * time.Hour}},
			code:     "own", steps: "a completed, b failed, ~timeout completed, a~undo completed",
		},
		"with a goal": {
			document: "goals: b\nsteps:\n  a: {call: a}\n  b: {needs: a, call: b}",
			results:  map[string]Result{"b": {After: 2 * time.Hour}},
			code:     contract.CodeTimeout, steps: "a completed, ~timeout completed, b failed",
		},
		"in a body": {
			document: "steps:\n  m: {map: '[1]', do: {call: a}}\n  b: {call: b, catch: {then: continue}}",
			results:  map[string]Result{"m[0]": {After: 2 * time.Hour}, "b": failure("x")},
			code:     contract.CodeTimeout, steps: "m~items completed, b failed, ~timeout completed, m[0] failed, m failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Trial{Results: test.results}.Run(parse(t, head+test.document))
			if err != nil {
				t.Fatal(err)
			}
			status := entities.RunFailed
			if test.code == "" {
				status = entities.RunCompleted
			}
			if got.Status != status || got.Error != nil && got.Error.Code != test.code {
				t.Errorf("the run is %s, %v, want %s %s", got.Status, got.Error, status, test.code)
			}
			if steps := strings.Join(got.Steps(), ", "); steps != test.steps {
				t.Errorf("got %s, want %s", steps, test.steps)
			}
		})
	}
}
