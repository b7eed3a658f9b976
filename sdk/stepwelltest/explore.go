package stepwelltest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Scenario is a test of workflows: it registers definitions, starts runs, lets them happen and asserts what came of it.
// It is executed many times, so everything that it changes must be its own.
type Scenario func(t testing.TB, env *Env)

// ExploreOption configures [EveryCrash] and [EveryOrder].
type ExploreOption func(*exploration)

// Executions sets how many executions there are at most; 5040 by default, the number of orders of seven things. If
// there are more crashes, n random ones are tried; if there are more orders, n/4 random ones after the first n.
func Executions(n int) ExploreOption { return func(x *exploration) { x.limit = n } }

// Seed repeats the random choices of an earlier test, whose failure names the seed.
func Seed(n uint64) ExploreOption { return func(x *exploration) { x.seed = n } }

// mostReports is how many failed executions are reported.
const mostReports = 3

type exploration struct {
	limit  int
	seed   uint64
	random *rand.Rand
	failed int
}

func explore(options []ExploreOption) *exploration {
	x := &exploration{limit: 5040, seed: rand.Uint64()} //nolint:gosec // the choices of a test are no secrets
	for _, set := range options {
		set(x)
	}
	x.random = rand.New(rand.NewPCG(x.seed, 0)) //nolint:gosec // it is to repeat them
	return x
}

// execute executes a scenario in an environment that prepare has changed, and returns what came of it.
func execute(t testing.TB, scenario Scenario, prepare func(*Env)) (*trial, *outcome) {
	var env *Env
	got := try(t, func(t *trial) {
		env = New(t)
		env.caller.repeats = 1 // there are many executions
		prepare(env)
		scenario(t, env)
		env.checkRecords()
	})
	return got, env.outcome()
}

// EveryCrash executes a scenario once as it is, and then once for each place where it can crash: the process dies after
// an inline step and before the step's result is recorded, or after it has written to the log during a call; the result
// of a step is lost, so that the step is executed again; the answer of a workflow is lost. No time passes by a crash,
// and no attempt of a step is lost.
//
// Each execution must pass the scenario's own assertions, and:
//
//   - Each run ends as it did without the crash, with the same output.
//   - Each step has the same idempotency key and input as without the crash, and none is added.
//   - When a run has ended, each step that was executed has a result in its log.
//   - The crash has lost the result of no step that had ended before another one did, except of workflows that write in
//     batches.
//
// A step that is executed twice with one idempotency key is right: services that respect the key act once. One that is
// [stepwell.AtMostOnce] is executed again here, too, though not by a server; [Stub] can have it fail with no_answer.
func EveryCrash(t testing.TB, scenario Scenario, options ...ExploreOption) {
	t.Helper()
	x := explore(options)
	got, expected := execute(t, scenario, func(e *Env) { e.caller.repeats = mostRepeats })
	if got.failed {
		t.Errorf("without a crash:\n%s", got.report())
		return
	}
	places := make([]int, expected.places)
	for i := range places {
		places[i] = i + 1
	}
	if len(places) > x.limit {
		x.random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		places = places[:x.limit]
		t.Logf("%d of %d crashes are tried; repeat them with Seed(%d)", x.limit, expected.places, x.seed)
	}
	for _, at := range places {
		got, outcome := execute(t, scenario, func(e *Env) { e.caller.faults.at = at })
		for _, difference := range outcome.differences(expected) {
			got.Error(difference)
		}
		if got.failed && x.report(t, fmt.Sprintf("crash %d of %d: %s", at, expected.places, outcome.crash), got) {
			return
		}
	}
}

// EveryOrder executes a scenario with each order in which the results of steps and the messages of [Env.ResumeWhenOpen]
// can come, between calls and during them. Time passes only when nothing else can happen. Each execution must pass the
// scenario's own assertions, each run must end in the same way, with the same output, and when a run has ended, each
// step that was executed must have a result in its log.
func EveryOrder(t testing.TB, scenario Scenario, options ...ExploreOption) {
	t.Helper()
	x := explore(options)
	var expected *outcome
	path := &choices{}
	for n := 1; ; n++ {
		got, outcome := execute(t, scenario, func(e *Env) {
			e.server.Choose, e.caller.chooseInline = path.choose, path.choose
		})
		if expected == nil {
			expected = outcome
		}
		for _, difference := range outcome.endsOtherThan(expected) {
			got.Error(difference)
		}
		name := fmt.Sprintf("order %d (choices %v)", n, path.taken)
		if path.random != nil {
			name += fmt.Sprintf(", of Seed(%d)", x.seed)
		}
		if got.failed && x.report(t, name, got) || !path.next() || n == x.limit+x.limit/4 {
			return
		}
		if n == x.limit {
			t.Logf("there are more than %d orders; %d random ones are tried too, of Seed(%d)", n, x.limit/4, x.seed)
			path = &choices{random: x.random}
		}
	}
}

// report reports a failed execution. It returns true if there were enough.
func (x *exploration) report(t testing.TB, name string, got *trial) bool {
	t.Helper()
	x.failed++
	t.Errorf("%s:\n%s", name, got.report())
	return x.failed == mostReports
}

// choices walks through all sequences of choices, or through random ones.
type choices struct {
	random *rand.Rand
	taken  []int
	of     []int // how many alternatives there were
	at     int
}

// choose returns the next choice of n.
func (c *choices) choose(n int) int {
	if n == 1 {
		return 0
	}
	if c.at == len(c.taken) {
		c.taken, c.of = append(c.taken, 0), append(c.of, n)
		if c.random != nil {
			c.taken[c.at] = c.random.IntN(n)
		}
	}
	c.at++
	return min(c.taken[c.at-1], n-1) // n is another one only if the scenario is not deterministic
}

// next begins another sequence. It reports false if there is none.
func (c *choices) next() bool {
	c.at = 0
	if c.random != nil {
		c.taken, c.of = nil, nil
		return true
	}
	for i := len(c.taken) - 1; i >= 0; i-- {
		if c.taken[i]+1 < c.of[i] {
			c.taken, c.of = append(c.taken[:i:i], c.taken[i]+1), c.of[:i+1]
			return true
		}
	}
	return false
}

// outcome is what came of an execution.
type outcome struct {
	ends    []string // of the runs, in the order in which they started
	effects map[string]effect
	places  int
	crash   string
}

func (e *Env) outcome() *outcome {
	o := &outcome{effects: e.caller.effects, places: e.caller.faults.count, crash: e.caller.faults.what}
	for _, r := range e.server.Runs() {
		end := fmt.Sprintf("run %s of %s is %s: %s", r.ID, r.Workflow, r.Status, r.Output)
		if r.LastError != "" {
			end += "\nits last invocation failed: " + r.LastError
		}
		o.ends = append(o.ends, end)
	}
	return o
}

// endsOtherThan returns how the ends of runs differ from what was expected.
func (o *outcome) endsOtherThan(expected *outcome) (differences []string) {
	for i := range max(len(o.ends), len(expected.ends)) {
		got, want := "no run", "no run"
		if i < len(o.ends) {
			got = o.ends[i]
		}
		if i < len(expected.ends) {
			want = expected.ends[i]
		}
		if got != want {
			differences = append(differences, fmt.Sprintf("%s\nexpected: %s", got, want))
		}
	}
	return differences
}

// differences returns how ends and effects differ from what was expected.
func (o *outcome) differences(expected *outcome) []string {
	differences := o.endsOtherThan(expected)
	for _, key := range slices.Sorted(maps.Keys(o.effects)) {
		got := o.effects[key]
		switch want, ok := expected.effects[key]; {
		case !ok:
			differences = append(differences, fmt.Sprintf("step %s of run %s was executed, which it is not without the crash:"+
				" its idempotency key is another one", got.ID, got.RunID))
		case got != want:
			differences = append(differences, fmt.Sprintf(
				"step %s of run %s was executed as %s(%s), without the crash as %s(%s)",
				got.ID, got.RunID, got.Name, got.Input, want.Name, want.Input))
		}
	}
	return differences
}

// checkRecords fails the test if a step was executed whose run has ended without a result of it.
func (e *Env) checkRecords() {
	e.tb.Helper()
	ended := map[string]bool{} // runs, and results of their steps
	for _, r := range e.server.Runs() {
		ended[r.ID] = r.Status != "running"
		for _, event := range r.Log {
			if event.Type == "step_completed" || event.Type == "step_failed" {
				ended[r.ID+"/"+event.ID] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.caller.effects)) {
		if f := e.caller.effects[key]; ended[f.RunID] && !ended[key] {
			e.tb.Errorf("step %s of run %s was executed, but the run ended without its result: wait for it", f.ID, f.RunID)
		}
	}
	if tokens := e.server.Undelivered(); len(tokens) > 0 {
		e.tb.Errorf("no hook with these tokens was open for a message: %s", strings.Join(tokens, ", "))
	}
}
