package limit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a set of limits with what holds and awaits their slots: the database of these tests.
type world struct {
	limits  map[string]limit.Limit
	held    map[string]limit.Candidate
	waiting map[string]limit.Candidate
	rates   map[limit.Bucket]time.Time
	served  map[limit.Bucket]time.Time
	arrived int
	began   []string
}

func newWorld(limits map[string]limit.Spec) *world {
	w := &world{
		limits: map[string]limit.Limit{}, held: map[string]limit.Candidate{}, waiting: map[string]limit.Candidate{},
		rates: map[limit.Bucket]time.Time{}, served: map[limit.Bucket]time.Time{},
	}
	for name, s := range limits {
		w.limits[name] = limit.Limit{Name: name, Spec: s.WithDefaults()}
	}
	return w
}

// arrive adds a candidate behind all that came before, and returns its name.
func (w *world) arrive(uses ...entities.LimitUse) string {
	w.arrived++
	name := fmt.Sprintf("h%06d", w.arrived)
	w.waiting[name] = limit.Candidate{Holder: name, Rank: start.Add(time.Duration(w.arrived)), Uses: uses}
	return name
}

func (w *world) facts() limit.Facts {
	f := limit.NewFacts()
	f.Limits, f.Rates, f.Served = w.limits, w.rates, w.served
	for _, c := range w.held {
		for _, u := range c.Uses {
			f.Held[limit.Bucket{Name: u.Name, Key: u.Key}] += limit.CostOf(u)
			f.Total[u.Name] += limit.CostOf(u)
			tenant := u.Tenant
			if tenant == "" {
				tenant = u.Key
			}
			f.Tenants[limit.Bucket{Name: u.Name, Key: tenant}] += limit.CostOf(u)
		}
	}
	for _, c := range w.waiting {
		f.Waiting = append(f.Waiting, c)
	}
	return f
}

// pass grants at the time, and returns who got slots.
func (w *world) pass(now time.Time) limit.Grants {
	g := limit.Grant(w.facts(), now)
	for holder, n := range g.Passed {
		c := w.waiting[holder]
		c.Passed = n
		w.waiting[holder] = c
	}
	for _, holder := range g.Holders {
		w.held[holder] = w.waiting[holder]
		delete(w.waiting, holder)
	}
	w.began = append(w.began, g.Holders...)
	return g
}

func (w *world) end(holder string) { delete(w.held, holder) }

func use(name, key string) entities.LimitUse { return entities.LimitUse{Name: name, Key: key} }

// TestGrantKeepsTheLimitsAndTheirSlotsBusy checks two rules after every pass of a random history: no limit is
// exceeded, and nobody waits who could go, unless somebody is before it who may not be passed over any more.
func TestGrantKeepsTheLimitsAndTheirSlotsBusy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(map[string]limit.Spec{
			"a": {PerKey: rapid.IntRange(0, 3).Draw(t, "per key"), Total: rapid.IntRange(1, 5).Draw(t, "total")},
			"b": {PerKey: rapid.IntRange(1, 3).Draw(t, "per key of b"), Fair: rapid.Bool().Draw(t, "fair")},
			"c": {Total: rapid.IntRange(1, 3).Draw(t, "total of c"), Fair: true},
		})
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0, 1:
				w.arrive(drawUses(t)...)
			case 2:
				if len(w.held) > 0 {
					held := slices.Sorted(keys(w.held))
					w.end(held[rapid.IntRange(0, len(held)-1).Draw(t, "ends")])
				}
			default:
				w.pass(start)
				w.check(t)
			}
		}
	})
}

func drawUses(t *rapid.T) (uses []entities.LimitUse) {
	for _, name := range []string{"a", "b", "c"} {
		if rapid.Bool().Draw(t, "needs "+name) {
			uses = append(uses, entities.LimitUse{
				Name: name, Key: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key"),
				Tenant: rapid.SampledFrom([]string{"", "t", "u"}).Draw(t, "tenant"),
			})
		}
	}
	if len(uses) == 0 {
		uses = append(uses, use("a", "x"))
	}
	return uses
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (w *world) check(t *rapid.T) {
	f := w.facts()
	for p, n := range f.Held {
		if l := w.limits[p.Name]; l.PerKey > 0 && n > l.PerKey {
			t.Fatalf("%d hold a slot of %v, which has %d", n, p, l.PerKey)
		}
	}
	for name, n := range f.Total {
		if l := w.limits[name]; l.Total > 0 && n > l.Total {
			t.Fatalf("%d hold a slot of %s, which has %d", n, name, l.Total)
		}
	}
	for _, c := range w.waiting {
		if c.Passed >= 100 {
			return
		}
	}
	for _, c := range w.waiting {
		fits := true
		for _, u := range c.Uses {
			l := w.limits[u.Name]
			fits = fits && (l.PerKey == 0 || f.Held[limit.Bucket{Name: u.Name, Key: u.Key}] < l.PerKey) &&
				(l.Total == 0 || f.Total[u.Name] < l.Total)
		}
		if fits {
			t.Fatalf("%s waits for %v, and all of them have room", c.Holder, c.Uses)
		}
	}
}

// TestRateHasNoWindowWithMoreThanItsLimit starts as often as it may, at random times, and checks every window.
func TestRateHasNoWindowWithMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	worst := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := limit.Spec{Rate: 1 + r.IntN(20), Per: time.Duration(1+r.IntN(60)) * time.Second, PerKey: 0}
		s.Burst = 1 + r.IntN(s.Rate)
		w := newWorld(map[string]limit.Spec{"r": s})
		var times []time.Time
		now := start
		for len(times) < 200 {
			for len(w.waiting) < 3 {
				w.arrive(use("r", "k"))
			}
			g := w.pass(now)
			for range g.Holders {
				times = append(times, now)
			}
			now = now.Add(time.Duration(r.Int64N(int64(s.Per) / int64(s.Rate) * 2)).Truncate(time.Microsecond))
			if r.IntN(3) == 0 && g.Next.After(now) { // exactly when it is allowed again
				now = g.Next
			}
		}
		for i, from := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Before(from.Add(s.Per)) {
					n++
				}
			}
			if n > s.Rate {
				t.Fatalf("seed %d: %d began in %s from %s; the limit is %d, with a burst of %d", seed, n, s.Per, from, s.Rate, s.Burst)
			}
			if n == s.Rate {
				worst++
			}
		}
	}
	if worst == 0 {
		t.Error("no window was ever full: the rate is lower than it has to be")
	}
}

func TestNewTenantGoesNext(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]limit.Spec{"l": {Total: 1, Fair: true}})
	for range 1000 {
		w.arrive(use("l", "a"))
	}
	w.pass(start)
	late := w.arrive(use("l", "b"))
	w.end(w.began[0])
	w.pass(start.Add(time.Second))
	if got := w.began[1]; got != late {
		t.Errorf("%s went next; want %s, the tenant that was not served yet", got, late)
	}
}

// TestSpreadingOverKeysGainsNothing has one tenant with one key, and one with 100, under a cap by key.
func TestSpreadingOverKeysGainsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]limit.Spec{"l": {PerKey: 5, Total: 4, Fair: true}})
	tenants := map[string]string{}
	for i := range 300 {
		wide := entities.LimitUse{Name: "l", Key: fmt.Sprint("wide", i%100), Tenant: "wide"}
		tenants[w.arrive(wide)] = "wide"
		tenants[w.arrive(entities.LimitUse{Name: "l", Key: "narrow", Tenant: "narrow"})] = "narrow"
	}
	for i := range 200 {
		w.pass(start.Add(time.Duration(i) * time.Second))
		w.end(w.began[i]) // the one that holds its slot for longest
	}
	count := map[string]int{}
	for _, holder := range w.began[:200] {
		count[tenants[holder]]++
	}
	if count["wide"] > 105 || count["narrow"] > 105 {
		t.Errorf("of 200 slots, the tenants got %v; want half each", count)
	}
}

// TestPassedOverBecomesABarrier has something need two limits, of which a stream of others always takes one.
func TestPassedOverBecomesABarrier(t *testing.T) {
	t.Parallel()
	for _, spec := range []limit.Spec{{PerKey: 1}, {Total: 1}} {
		w := newWorld(map[string]limit.Spec{"a": spec, "b": spec})
		w.arrive(use("a", "k"))
		w.arrive(use("b", "k"))
		w.pass(start)
		both := w.arrive(use("a", "k"), use("b", "k"))
		for i := 0; w.waiting[both].Holder != "" && i < 300; i++ {
			w.arrive(use("a", "k"))
			w.arrive(use("b", "k"))
			w.end(w.began[i]) // the limits free up one after the other
			w.pass(start)
		}
		if got := len(w.began) - 2; got > 101 {
			t.Errorf("%+v: %d went before it; want at most 100 and itself", spec, got)
		}
		if _, ok := w.held[both]; !ok {
			t.Errorf("%+v: it still waits", spec)
		}
	}
}

func TestPausedLimitIsNoBarrier(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]limit.Spec{"a": {PerKey: 1}, "b": {PerKey: 1, Paused: true}})
	w.arrive(use("a", "k"), use("b", "k"))
	for i := range 150 {
		w.arrive(use("a", "k"))
		w.pass(start)
		if len(w.began) != i+1 {
			t.Fatalf("after %d passes, %d have begun: what waits for a paused limit holds up the others", i+1, len(w.began))
		}
		w.end(w.began[i])
	}
}

func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]limit.Spec{"a": {PerKey: 1}})
	w.arrive(use("a", "k"))
	urgent := w.arrive(use("a", "k"))
	c := w.waiting[urgent]
	c.Rank = c.Rank.Add(-time.Minute)
	w.waiting[urgent] = c
	w.pass(start)
	if w.began[0] != urgent {
		t.Errorf("%s went first; want %s", w.began[0], urgent)
	}
}

func TestCostTakesSeveralSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]limit.Spec{"a": {PerKey: 3}})
	large := entities.LimitUse{Name: "a", Key: "k", Cost: 2}
	w.arrive(large)
	w.arrive(large)
	w.arrive(use("a", "k"))
	w.pass(start)
	if want := []string{"h000001", "h000003"}; !slices.Equal(w.began, want) {
		t.Errorf("%v began; want %v, which take three slots", w.began, want)
	}
}

// TestBarrierHoldsUpNothingInsideARun that holds the slot for which the barrier waits: neither would ever go on.
func TestBarrierHoldsUpNothingInsideARun(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{true, false} {
		w := newWorld(map[string]limit.Spec{"a": {PerKey: 1}, "b": {PerKey: 1, OnFull: limit.Reject}})
		w.arrive(use("a", "k"))
		w.pass(start)
		barrier := w.arrive(use("a", "k"), use("b", "k"))
		c := w.waiting[barrier]
		c.Passed = 100
		w.waiting[barrier] = c
		step := w.arrive(use("b", "k"))
		c = w.waiting[step]
		c.Inside, c.MayRefuse = inside, true
		w.waiting[step] = c
		g := w.pass(start)
		if _, held := w.held[step]; held != inside {
			t.Errorf("inside %v: granted %v", inside, held)
		}
		if refused := g.Refused[step] != nil; refused == inside {
			t.Errorf("inside %v: refused %v", inside, refused)
		}
	}
}
