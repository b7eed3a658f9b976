package flow

import (
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
)

// TestDecisionsThatNobodyCarriesOutAreMadeAgain divides the new events of each decision at each place, decides there in
// vain, and goes on. The next decision is that of the whole log.
func TestDecisionsThatNobodyCarriesOutAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		`{flow: f, deployment: d, steps: {m: {map: '[1,2,3]', concurrency: 2, tolerate: 1, do: {steps: {a: {call: f}, b: {needs: a, call: f}}}}, z: {needs: m, call: f}}}`,
		`{flow: f, deployment: d, steps: {l: {loop: {do: {steps: {a: {call: f, undo: {call: u}}, b: {needs: a, set: 1}}}, while: 'iteration.index < 4', max: 4}}, x: {call: f}, z: {needs: [l, x], fail: {message: no}}}}`,
		`{flow: f, deployment: d, steps: {a: {call: f}, b: {call: f, catch: [{}]}, c: {call: f, needs: [a, b], join: any}, w: {wait: 1h, needs: [c]}}}`,
	} {
		p, err := Parse([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		trial := Trial{Results: map[string]Result{"m[1].a": failure("x"), "b": failure("x")}}
		o, err := trial.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		for divide := range 4 {
			checkInVain(t, p, o, divide)
		}
	}
}

func checkInVain(t *testing.T, p *Program, o Outcome, divide int) {
	t.Helper()
	var run contract.Run
	kept, seen := p.Begin(), 0
	for _, n := range o.decisions {
		middle := min(seen+divide, n)
		if err := kept.Apply(run, o.Events[seen:middle]); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := kept.Continue(run, o.Events[middle:n]); err != nil {
			t.Fatal(err)
		}
		seen = n
		got, err := kept.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		whole, err := p.Answer(t.Context(), Call{Run: run, Events: o.Events[:n]})
		if text := string(mustJSON(map[string]any{"commands": got})); err != nil || text != string(whole) {
			t.Fatalf("after %d events, divided at %d:\n%s\nwant\n%s (%v)", n, middle, text, whole, err)
		}
	}
}
