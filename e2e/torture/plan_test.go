package torture

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"
)

// plan is the program of a run (see e2e/app/workflows/torture.ts). Each attempt to start it has its own ID: an attempt
// with unknown outcome may have created a run, and the next attempt must not use the same hook tokens.
type plan struct {
	ID    string `json:"id"`
	Parts []part `json:"parts"`
}

// part is a part of a plan. The meaning of N and Ms depends on the kind.
type part struct {
	Kind  string `json:"kind"`
	N     int    `json:"n"`
	Ms    int    `json:"ms"`
	Parts []part `json:"parts"`
}

// newPlan generates a plan. The same arguments yield the same plan.
func newPlan(seed uint64, name string, number uint64) plan {
	rng := rand.New(rand.NewPCG(seed, number))
	p := plan{ID: fmt.Sprint(name, "-", number)}
	for range 2 + rng.IntN(3) {
		p.Parts = append(p.Parts, newPart(rng, true))
	}
	return p
}

func newPart(rng *rand.Rand, nest bool) part {
	switch kind := rng.IntN(8); {
	case kind == 0:
		return part{Kind: "retry", N: 1 + rng.IntN(2)}
	case kind == 1:
		return part{Kind: "sleep", Ms: 500 + rng.IntN(3000)}
	case kind == 2:
		return part{Kind: "hook", N: 1 + rng.IntN(3)}
	case kind == 3:
		return part{Kind: "stream", N: 3 + rng.IntN(10), Ms: rng.IntN(200)}
	case kind == 4:
		return part{Kind: "fan", N: 2 + rng.IntN(6), Ms: rng.IntN(500)}
	case kind == 5 && nest:
		p := part{Kind: "at once"}
		for range 2 + rng.IntN(3) {
			p.Parts = append(p.Parts, newPart(rng, false))
		}
		return p
	default:
		return part{Kind: "steps", N: 1 + rng.IntN(4), Ms: rng.IntN(800)}
	}
}

// attempt returns the plan with the ID of the nth attempt, counted from 1.
func (p plan) attempt(n int) plan {
	return plan{fmt.Sprint(p.ID, ".", n), p.Parts}
}

// each visits all parts with their names, including nested ones.
func (p plan) each(visit func(name string, p part)) { eachPart(p.ID, p.Parts, visit) }

func eachPart(name string, parts []part, visit func(string, part)) {
	for i, p := range parts {
		name := fmt.Sprint(name, ".", i)
		visit(name, p)
		eachPart(name, p.Parts, visit)
	}
}

// named returns the plan's parts of a kind by name.
func (p plan) named(kind string) map[string]part {
	found := map[string]part{}
	p.each(func(name string, p part) {
		if p.Kind == kind {
			found[name] = p
		}
	})
	return found
}

// steps returns the names of the plan's steps.
func (p plan) steps() (names []string) {
	p.each(func(name string, p part) { names = append(names, p.steps(name)...) })
	return names
}

func (p part) steps(name string) (names []string) {
	switch p.Kind {
	case "steps", "fan":
		for i := range p.N {
			names = append(names, fmt.Sprint(name, ".", i))
		}
	case "retry", "stream":
		names = []string{name}
	case "hook":
		names = []string{name + ".announce"}
	}
	return names
}

// idealDuration returns how long a run of the plan takes without any delays or overhead.
func (p plan) idealDuration() time.Duration { return totalDuration(p.Parts) }

func totalDuration(parts []part) (d time.Duration) {
	for _, p := range parts {
		d += p.idealDuration()
	}
	return d
}

func (p part) idealDuration() (d time.Duration) {
	ms := time.Duration(p.Ms) * time.Millisecond
	switch p.Kind {
	case "steps", "stream":
		return ms * time.Duration(p.N)
	case "fan", "sleep":
		return ms
	case "retry":
		return time.Second * time.Duration(p.N)
	case "at once":
		for _, p := range p.Parts {
			d = max(d, p.idealDuration())
		}
	}
	return d
}

// problems compares the result of a run with the plan. executed holds the marks of all step executions.
func (p plan) problems(result any, executed map[string]bool) (problems []string) {
	return sequenceProblems(p.ID, p.Parts, result, executed)
}

func sequenceProblems(name string, parts []part, result any, executed map[string]bool) (problems []string) {
	results, ok := result.([]any)
	if !ok || len(results) != len(parts) {
		return []string{fmt.Sprintf("%s: result %v, want %d parts", name, result, len(parts))}
	}
	for i, p := range parts {
		problems = append(problems, p.problems(fmt.Sprint(name, ".", i), results[i], executed)...)
	}
	return problems
}

var markForm = regexp.MustCompile(`^(.+)#[a-z0-9]+$`)

func (p part) problems(name string, result any, executed map[string]bool) []string {
	switch p.Kind {
	case "at once":
		return sequenceProblems(name, p.Parts, result, executed)
	case "steps", "fan":
		var marks []part
		for range p.N {
			marks = append(marks, part{Kind: "retry"})
		}
		return sequenceProblems(name, marks, result, executed)
	case "retry", "stream":
		mark, _ := result.(string)
		if found := markForm.FindStringSubmatch(mark); found == nil || found[1] != name {
			return []string{fmt.Sprintf("%s: result %v", name, result)}
		}
		if !executed[mark] {
			return []string{fmt.Sprintf("%s: result %v belongs to no execution", name, result)}
		}
		return nil
	case "hook":
		want := make([]any, p.N)
		for i := range want {
			want[i] = float64(i)
		}
		if fmt.Sprint(result) != fmt.Sprint(want) {
			return []string{fmt.Sprintf("%s: received %v, want %v", name, result, want)}
		}
		return nil
	default:
		if result != "awake" {
			return []string{fmt.Sprintf("%s: result %v", name, result)}
		}
		return nil
	}
}

// TestPlansAreDeterministicAndChecked checks that plans depend only on their arguments, that every kind of part occurs,
// and that problems rejects wrong results.
func TestPlansAreDeterministicAndChecked(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for number := range uint64(40) {
		p := newPlan(1, "p", number)
		if again := newPlan(1, "p", number); fmt.Sprint(p) != fmt.Sprint(again) {
			t.Fatalf("plan %d is %v, and then %v", number, p, again)
		}
		p.each(func(_ string, p part) { kinds[p.Kind] = true })
	}
	if len(kinds) != 7 {
		t.Errorf("kinds are %v", kinds)
	}

	p := plan{"p", []part{{Kind: "fan", N: 2}, {Kind: "hook", N: 2}, {Kind: "sleep"}}}
	executed := map[string]bool{"p.0.0#a": true, "p.0.1#b": true}
	good := []any{[]any{"p.0.0#a", "p.0.1#b"}, []any{0.0, 1.0}, "awake"}
	if got := p.problems(good, executed); len(got) > 0 {
		t.Errorf("a good result: %v", got)
	}
	for _, bad := range []any{
		nil,
		"awake",
		good[:2],
		[]any{[]any{"p.0.0#a"}, []any{0.0, 1.0}, "awake"},
		[]any{[]any{"p.0.0#a", "p.0.0#a"}, []any{0.0, 1.0}, "awake"},
		[]any{[]any{"p.0.0#a", "p.0.1#c"}, []any{0.0, 1.0}, "awake"},
		[]any{[]any{"p.0.0#a", "p.0.1#b"}, []any{0.0, 0.0}, "awake"},
		[]any{[]any{"p.0.0#a", "p.0.1#b"}, []any{0.0, 1.0}, nil},
	} {
		if got := p.problems(bad, executed); len(got) == 0 {
			t.Errorf("result %v has no problem", bad)
		}
	}
}
