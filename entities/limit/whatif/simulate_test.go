package whatif_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/limit"
	"github.com/stepwell-dev/stepwell/entities/limit/whatif"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// run is a run that comes and ends at a second of the window.
func run(id, key string, at, took int) whatif.Run {
	return whatif.Run{ID: entities.RunID(id), Key: key, At: second(at), Took: time.Duration(took) * time.Second}
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	// Three runs with one key that take 10 s each and come 1 s apart, and one with another key.
	three := []whatif.Run{run("a", "k", 0, 10), run("b", "k", 1, 10), run("c", "k", 2, 10), run("d", "l", 2, 10)}
	counts := func(runs, waited int, longest time.Duration) whatif.Counts {
		return whatif.Counts{Runs: runs, Waited: waited, Longest: longest}
	}
	for name, c := range map[string]struct {
		spec limit.Spec
		cost int
		runs []whatif.Run
		want whatif.Outcome
	}{
		"nothing": {limit.Spec{PerKey: 1}, 1, nil, whatif.Outcome{}},
		"room":    {limit.Spec{PerKey: 3}, 1, three, whatif.Outcome{Counts: counts(4, 0, 0)}},
		// b goes at 10 and c at 20.
		"one after another": {limit.Spec{PerKey: 1}, 1, three, whatif.Outcome{
			Counts: counts(4, 2, 18*time.Second), P50: 9 * time.Second, P95: 18 * time.Second,
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: counts(3, 2, 18*time.Second)}},
		}},
		// Each takes both places.
		"cost": {limit.Spec{PerKey: 3}, 2, three, whatif.Outcome{
			Counts: counts(4, 2, 18*time.Second), P50: 9 * time.Second, P95: 18 * time.Second,
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: counts(3, 2, 18*time.Second)}},
		}},
		// c goes at 10 and d at 11.
		"total": {limit.Spec{Total: 2}, 1, three, whatif.Outcome{
			Counts: counts(4, 2, 9*time.Second), P50: 8 * time.Second, P95: 9 * time.Second,
			Keys: []whatif.KeyOutcome{
				{Key: "l", Counts: counts(1, 1, 9*time.Second)}, {Key: "k", Counts: counts(3, 1, 8*time.Second)},
			},
		}},
		// One a minute: b goes at 60, and c, at 120, is too late for the window.
		"rate": {limit.Spec{Rate: 1, Per: time.Minute, Burst: 1}, 1, three, whatif.Outcome{
			Counts: counts(4, 2, 98*time.Second), StillWaiting: 1, P50: 59 * time.Second, P95: 98 * time.Second,
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: counts(3, 2, 98*time.Second)}},
		}},
		"reject": {limit.Spec{PerKey: 1, OnFull: limit.Reject}, 1, three, whatif.Outcome{
			Counts: whatif.Counts{Runs: 4, Refused: 2}, RefusedRuns: []entities.RunID{"b", "c"},
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: whatif.Counts{Runs: 3, Refused: 2}}},
		}},
		// c replaces b.
		"replaceWaiting": {limit.Spec{PerKey: 1, OnFull: limit.ReplaceWaiting}, 1, three, whatif.Outcome{
			Counts: whatif.Counts{Runs: 4, Waited: 1, Cancelled: 1, Longest: 8 * time.Second},
			P50:    8 * time.Second, P95: 8 * time.Second,
			Keys: []whatif.KeyOutcome{
				{Key: "k", Counts: whatif.Counts{Runs: 3, Waited: 1, Cancelled: 1, Longest: 8 * time.Second}},
			},
		}},
		// b cancels a, and c cancels b.
		"cancelOldest": {limit.Spec{PerKey: 1, OnFull: limit.CancelOldest}, 1, three, whatif.Outcome{
			Counts: whatif.Counts{Runs: 4, Cancelled: 2},
			Keys:   []whatif.KeyOutcome{{Key: "k", Counts: whatif.Counts{Runs: 3, Cancelled: 2}}},
		}},
		"one that has not ended": {limit.Spec{PerKey: 1}, 1, []whatif.Run{
			{ID: "a", Key: "k", At: second(0), Took: -1}, run("b", "k", 40, 1),
		}, whatif.Outcome{
			Counts: counts(2, 1, time.Minute), StillWaiting: 1, P50: time.Minute, P95: time.Minute,
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: counts(2, 1, time.Minute)}},
		}},
		// The first one came before the window: only its place counts.
		"one from before": {limit.Spec{PerKey: 1}, 1, []whatif.Run{run("a", "k", -5, 10), run("b", "k", 2, 1)}, whatif.Outcome{
			Counts: counts(1, 1, 3*time.Second), P50: 3 * time.Second, P95: 3 * time.Second,
			Keys: []whatif.KeyOutcome{{Key: "k", Counts: counts(1, 1, 3*time.Second)}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := whatif.Simulate(whatif.Question{
				Spec: c.spec.WithDefaults(), Cost: c.cost, From: start, To: second(100), Runs: slices.Clone(c.runs),
			})
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, error %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestSimulateRefuses(t *testing.T) {
	t.Parallel()
	// All come at once with keys of their own, and each end looks at all that wait.
	many := make([]whatif.Run, 2_000)
	for i := range many {
		many[i] = run(fmt.Sprintf("%06d", i), fmt.Sprint(i), 0, 1)
	}
	for name, c := range map[string]struct {
		q    whatif.Question
		want error
	}{
		"settings":    {whatif.Question{Cost: 1}, entities.ErrInvalid},
		"cost":        {whatif.Question{Spec: limit.Spec{PerKey: 1}, Cost: 2}, entities.ErrInvalid},
		"no cost":     {whatif.Question{Spec: limit.Spec{PerKey: 1}}, entities.ErrInvalid},
		"too much":    {whatif.Question{Spec: limit.Spec{Total: 1}, Cost: 1, Runs: many}, whatif.ErrTooMuch},
		"independent": {whatif.Question{Spec: limit.Spec{PerKey: 1}, Cost: 1, Runs: many}, nil},
	} {
		c.q.Spec, c.q.From, c.q.To = c.q.Spec.WithDefaults(), start, second(30_000)
		if _, err := whatif.SimulateWithin(c.q, 50_000); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestSimulateAsTheGranterWould compares with a simulation that asks the granter about everybody who waits whenever
// something happens.
func TestSimulateAsTheGranterWould(t *testing.T) {
	t.Parallel()
	affected := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := question(r)
		got, err := whatif.Simulate(whatif.Question{
			Spec: q.Spec, Cost: q.Cost, From: q.From, To: q.To, Runs: slices.Clone(q.Runs),
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := naive(q)
		if got.Counts != want.Counts || got.StillWaiting != want.StillWaiting ||
			!slices.Equal(got.RefusedRuns, want.RefusedRuns) {
			t.Fatalf("seed %d, %+v cost %d: got %+v\nwant %+v", seed, q.Spec, q.Cost, got, want)
		}
		if got.Waited+got.Refused+got.Cancelled > 0 {
			affected++
		}
	}
	if affected < 1000 {
		t.Errorf("only %d of the questions have runs that wait, are refused or cancelled", affected)
	}
}

// question returns a random question about up to 20 runs.
func question(r *rand.Rand) whatif.Question {
	q := whatif.Question{Cost: 1 + r.IntN(2), From: start, To: second(60)}
	q.Spec.OnFull = []limit.OnFull{limit.Wait, limit.Wait, limit.Reject, limit.ReplaceWaiting}[r.IntN(4)]
	q.Spec.Fair = r.IntN(3) == 0
	if r.IntN(2) == 0 {
		q.Spec.PerKey = q.Cost + r.IntN(3)
		if r.IntN(4) == 0 {
			q.Spec.OnFull = limit.CancelOldest
		}
	}
	if r.IntN(2) == 0 {
		q.Spec.Total = q.Cost + r.IntN(4)
	}
	if q.Spec.PerKey+q.Spec.Total == 0 || r.IntN(3) == 0 {
		q.Spec.Burst = q.Cost + r.IntN(2)
		q.Spec.Rate, q.Spec.Per = q.Spec.Burst+r.IntN(3), 10*time.Second
	}
	for i := range 1 + r.IntN(20) {
		one := run(fmt.Sprintf("%02d", i), string(rune('a'+r.IntN(3))), r.IntN(30)-3, r.IntN(8)-1)
		one.Tenant = []string{"", "x", "y"}[r.IntN(3)]
		q.Runs = append(q.Runs, one)
	}
	return q
}

// naive answers a question second by second: all times of the questions are whole seconds, except those of rates.
func naive(q whatif.Question) (o whatif.Outcome) {
	type one struct {
		whatif.Run

		holder string
		ends   time.Time
	}
	slices.SortFunc(q.Runs, func(a, b whatif.Run) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	f := limit.NewFacts()
	f.Limits[""] = limit.Limit{Spec: q.Spec}
	var waits, holds []*one
	use := func(w *one) entities.LimitUse { return entities.LimitUse{Key: w.Key, Tenant: w.Tenant, Cost: q.Cost} }
	counts := func(w *one) bool { return !w.At.Before(q.From) }
	count := func(w *one, into *int) {
		if counts(w) {
			*into++
		}
	}
	release := func(w *one) {
		f.Held[limit.Place{Key: w.Key}] -= q.Cost
		f.Total[""] -= q.Cost
		f.Tenants[limit.Place{Key: cmp.Or(w.Tenant, w.Key)}] -= q.Cost
		holds = slices.DeleteFunc(holds, func(h *one) bool { return h == w })
	}
	gone := func(w *one) { waits = slices.DeleteFunc(waits, func(h *one) bool { return h == w }) }
	grant := func(now time.Time) time.Time {
		f.Waiting = nil
		for _, w := range waits {
			f.Waiting = append(f.Waiting, limit.Candidate{Holder: w.holder, Rank: w.At, Uses: []entities.LimitUse{use(w)}})
		}
		g := limit.Grant(f, now)
		for _, h := range g.Holders {
			w := waits[slices.IndexFunc(waits, func(w *one) bool { return w.holder == h })]
			gone(w)
			if now.After(w.At) {
				count(w, &o.Waited)
				if counts(w) {
					o.Longest = max(o.Longest, now.Sub(w.At))
				}
			}
			w.ends = now.Add(w.Took)
			if w.Took < 0 {
				w.ends = q.To.Add(time.Hour)
			}
			holds = append(holds, w)
		}
		return g.Next
	}
	var next time.Time
	left := q.Runs
	for {
		// What is next: the first end, the next start that the rate allows, or an arrival; in this order at one time.
		at, what := q.To.Add(1), ""
		var first *one
		for _, h := range holds {
			if h.ends.Before(at) || what == "end" && h.ends.Equal(at) && h.holder < first.holder {
				at, what, first = h.ends, "end", h
			}
		}
		if !next.IsZero() && next.Before(at) {
			at, what = next, "rate"
		}
		if len(left) > 0 && left[0].At.Before(at) {
			at, what = left[0].At, "arrival"
		}
		switch what {
		case "":
			for _, w := range waits {
				count(w, &o.Waited)
				count(w, &o.StillWaiting)
				if counts(w) {
					o.Longest = max(o.Longest, q.To.Sub(w.At))
				}
			}
			return o
		case "end":
			release(first)
			next = grant(at)
		case "rate":
			next = grant(at)
		case "arrival":
			w := &one{Run: left[0], holder: fmt.Sprintf("%09d", len(q.Runs)-len(left))}
			left = left[1:]
			count(w, &o.Runs)
			others := slices.Clone(waits)
			waits = append(waits, w)
			next = grant(at)
			if !slices.Contains(waits, w) {
				continue
			}
			victims := []*one{}
			switch q.Spec.OnFull {
			case limit.Reject:
				gone(w)
				count(w, &o.Refused)
				if counts(w) {
					o.RefusedRuns = append(o.RefusedRuns, w.ID)
				}
			case limit.ReplaceWaiting:
				victims = others
			case limit.CancelOldest:
				missing := f.Held[limit.Place{Key: w.Key}] + q.Cost - q.Spec.PerKey
				for _, v := range others {
					if v.Key == w.Key {
						missing += q.Cost
					}
				}
				for _, v := range append(slices.Clone(holds), others...) {
					if v.Key == w.Key && missing > 0 {
						victims, missing = append(victims, v), missing-q.Cost
					}
				}
			case limit.Wait:
			}
			for _, v := range victims {
				if v.Key != w.Key {
					continue
				}
				count(v, &o.Cancelled)
				if slices.Contains(holds, v) {
					release(v)
				}
				gone(v)
			}
			next = grant(at)
		}
	}
}
