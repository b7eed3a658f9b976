// Package whatif answers what a limit would have done to the runs of the past: which of them would have waited, and how
// long, and which would have been refused.
//
// [Simulate] goes through the arrivals and the ends of recorded runs in the order of time, and lets [limit.Grant]
// decide, as it does for real. It is pure. [Store] reads the runs.
package whatif

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/limit"
)

// Bounds of an answer.
const (
	// MaxRuns is how many runs a question may be about.
	MaxRuns = 100_000
	// maxLooks bounds the time that a simulation takes: it is how often it may ask whether a run that waits can go, which
	// takes a few seconds.
	maxLooks = 5_000_000
	// maxKeys and maxRefused are how many keys and refused runs an outcome names.
	maxKeys    = 20
	maxRefused = 20
)

// ErrTooMuch means that the question is about more than an answer takes into account. The error says how to narrow it.
var ErrTooMuch = errors.New("too much to simulate")

// Run is a run of the past.
type Run struct {
	ID entities.RunID
	// Key and Tenant are those with which it would have needed the limit.
	Key, Tenant string
	// At is when it came.
	At time.Time
	// Took is how long it held its places once it had them; negative if it has not ended.
	Took time.Duration
}

// Question is what is asked.
type Question struct {
	Spec limit.Spec
	// Cost is how many places each run takes; at least 1.
	Cost int
	// From and To are the window. Runs that came before it take part as far as they were still under way in it; they are
	// not in the outcome.
	From, To time.Time
	Runs     []Run
}

// Counts is what would have happened to runs.
type Counts struct {
	Runs int
	// Waited is how many would have waited for a place, including those that would still wait at the end of the window.
	Waited int
	// Refused is how many starts would have been refused, and Cancelled how many runs cancelled for others.
	Refused, Cancelled int
	// Longest is the longest wait.
	Longest time.Duration
}

// KeyOutcome is what would have happened to the runs with a key.
type KeyOutcome struct {
	Key string
	Counts
}

// Outcome is the answer.
type Outcome struct {
	Counts

	// StillWaiting is how many would still wait at the end of the window. Their waits count up to there.
	StillWaiting int
	// P50 and P95 are percentiles of the waits of those that would have waited.
	P50, P95 time.Duration
	// RefusedRuns has the first runs that would have been refused.
	RefusedRuns []entities.RunID
	// Keys has the keys that the limit would have affected most: most runs that waited, were refused or cancelled.
	Keys []KeyOutcome
}

// Simulate answers the question. It fails with [entities.ErrInvalid] if the settings are, and with [ErrTooMuch].
func Simulate(q Question) (Outcome, error) { return simulate(q, maxLooks) }

func simulate(q Question, maxLooks int) (Outcome, error) {
	if err := q.Spec.Validate(); err != nil {
		return Outcome{}, err
	}
	if most := q.Spec.Most(); q.Cost < 1 || q.Cost > most {
		return Outcome{}, entities.Invalid("a cost of %d is not between 1 and %d, the places of the limit", q.Cost, most)
	}
	slices.SortFunc(q.Runs, func(a, b Run) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	s := simulation{Question: q, fates: make([]fate, len(q.Runs)), maxLooks: maxLooks}
	for _, part := range q.parts() {
		if err := s.play(part); err != nil {
			return Outcome{}, err
		}
	}
	return s.outcome(), nil
}

// parts returns the runs that compete with each other, by their numbers: those with one key if nothing is shared
// between keys, else all.
func (q Question) parts() [][]int {
	shared := q.Spec.Total > 0 || q.Spec.Fair
	var parts [][]int
	of := map[string]int{}
	for i, r := range q.Runs {
		key := r.Key
		if shared {
			key = ""
		}
		n, ok := of[key]
		if !ok {
			n = len(parts)
			of[key], parts = n, append(parts, nil)
		}
		parts[n] = append(parts[n], i)
	}
	return parts
}

// state is what has become of a run.
type state int

const (
	coming state = iota
	waiting
	holding
	ended
	refused
	cancelled
)

// fate is what becomes of a run.
type fate struct {
	state state
	// granted is when it got its places.
	granted time.Time
	waited  bool
}

// simulation is a question on its way to the answer.
type simulation struct {
	Question

	fates           []fate
	looks, maxLooks int

	// What follows is of one part.
	facts limit.Facts
	// lines has who waits with a key, and for fair limits with a tenant, in the order in which they came; the first one
	// always waits.
	lines map[line][]int
	// held has who has held places with a key, in order.
	held map[string][]int
	ends ends
	next time.Time // when the rate allows the next one; zero if none waits for that
}

type line struct{ key, tenant string }

func (s *simulation) lineOf(i int) line {
	if s.Spec.Fair {
		return line{s.Runs[i].Key, s.Runs[i].Tenant}
	}
	return line{key: s.Runs[i].Key}
}

func (s *simulation) use(i int) entities.LimitUse {
	return entities.LimitUse{Key: s.Runs[i].Key, Tenant: s.Runs[i].Tenant, Cost: s.Cost}
}

// play lets the runs of a part come and end. Of what happens at one time, ends are first, and arrivals last.
func (s *simulation) play(part []int) error {
	s.facts = limit.NewFacts()
	s.facts.Limits[""] = limit.Limit{Spec: s.Spec}
	s.lines, s.held, s.ends, s.next = map[line][]int{}, map[string][]int{}, nil, time.Time{}
	for {
		if s.looks > s.maxLooks {
			return fmt.Errorf("%w: too many would have waited at the same time: shorten the window", ErrTooMuch)
		}
		at, what := s.To, (func(time.Time))(nil)
		earlier := func(t time.Time, do func(time.Time)) {
			if !t.After(at) && (what == nil || t.Before(at)) {
				at, what = t, do
			}
		}
		if len(s.ends) > 0 {
			earlier(s.ends[0].at, s.end)
		}
		if !s.next.IsZero() {
			earlier(s.next, s.grant)
		}
		if len(part) > 0 {
			i := part[0]
			earlier(s.Runs[i].At, func(at time.Time) {
				part = part[1:]
				s.arrive(i, at)
			})
		}
		if what == nil {
			return nil
		}
		what(at)
	}
}

// arrive has a run come. What could go before it has gone, so nobody else can go now, unless runs are cancelled.
func (s *simulation) arrive(i int, at time.Time) {
	l := s.lineOf(i)
	if len(s.lines[l]) == 0 && s.room(l.key) > 0 {
		next, granted := s.ask([]int{i}, at)
		if granted {
			return
		}
		if !next.IsZero() && (s.next.IsZero() || next.Before(s.next)) {
			s.next = next
		}
	}
	switch s.Spec.OnFull {
	case limit.Reject:
		s.fates[i].state = refused
		return
	case limit.ReplaceWaiting:
		for _, v := range s.waitingWith(l.key) {
			s.cancel(v)
		}
	case limit.CancelOldest:
		defer s.grant(at) // once the run waits
		s.cancelOldest(l.key)
	case limit.Wait:
	}
	s.fates[i].state, s.fates[i].waited = waiting, true
	s.lines[l] = append(s.lines[l], i)
}

// cancelOldest cancels the runs that came first with the key, as many as leave room for one more.
func (s *simulation) cancelOldest(key string) {
	queue := s.waitingWith(key)
	missing := s.facts.Held[limit.Place{Key: key}] + s.Cost*(len(queue)+1) - s.Spec.PerKey
	for _, v := range append(s.holdersWith(key), queue...) {
		if missing <= 0 {
			return
		}
		s.cancel(v)
		missing -= s.Cost
	}
}

func (s *simulation) holdersWith(key string) []int {
	s.held[key] = slices.DeleteFunc(s.held[key], func(i int) bool { return s.fates[i].state != holding })
	return slices.Clone(s.held[key])
}

// waitingWith returns who waits with the key, in the order in which they came.
func (s *simulation) waitingWith(key string) (all []int) {
	if !s.Spec.Fair {
		return slices.Clone(s.lines[line{key: key}])
	}
	for l, queue := range s.lines {
		if l.key == key {
			all = append(all, queue...)
		}
	}
	s.looks += len(s.lines)
	slices.Sort(all)
	return all
}

func (s *simulation) cancel(i int) {
	was := s.fates[i].state
	s.fates[i].state = cancelled
	if was == holding {
		s.release(i)
		return
	}
	s.leave(i)
}

// leave takes a run out of its line.
func (s *simulation) leave(i int) {
	l := s.lineOf(i)
	queue := s.lines[l]
	if queue[0] == i {
		queue = queue[1:]
	} else {
		queue = slices.DeleteFunc(queue, func(other int) bool { return other == i })
	}
	if len(queue) == 0 {
		delete(s.lines, l)
	} else {
		s.lines[l] = queue
	}
}

// end has the next run end that holds places, unless it was cancelled.
func (s *simulation) end(at time.Time) {
	i := heap.Pop(&s.ends).(finish).run
	if s.fates[i].state != holding {
		return
	}
	s.fates[i].state = ended
	s.release(i)
	s.grant(at)
}

func (s *simulation) release(i int) {
	r := s.Runs[i]
	subtract(s.facts.Held, limit.Place{Key: r.Key}, s.Cost)
	subtract(s.facts.Tenants, limit.Place{Key: cmp.Or(r.Tenant, r.Key)}, s.Cost)
	s.facts.Total[""] -= s.Cost
}

func subtract(from map[limit.Place]int, p limit.Place, n int) {
	if from[p] -= n; from[p] == 0 {
		delete(from, p)
	}
}

// room returns how many more can hold places with the key; rates aside.
func (s *simulation) room(key string) int {
	n := math.MaxInt
	if s.Spec.PerKey > 0 {
		n = min(n, (s.Spec.PerKey-s.facts.Held[limit.Place{Key: key}])/s.Cost)
	}
	if s.Spec.Total > 0 {
		n = min(n, (s.Spec.Total-s.facts.Total[""])/s.Cost)
	}
	if s.Spec.Rate > 0 {
		n = min(n, s.Spec.Burst/s.Cost)
	}
	return n
}

// grant lets go who can. All take the same number of places, so nobody can go whose line's first ones cannot.
func (s *simulation) grant(at time.Time) {
	for granted := true; granted; {
		s.next = time.Time{}
		if s.Spec.Total > 0 && s.facts.Total[""]+s.Cost > s.Spec.Total {
			return
		}
		var first []int
		for l, queue := range s.lines {
			first = append(first, queue[:max(0, min(len(queue), s.room(l.key)))]...)
		}
		s.looks += len(s.lines)
		if len(first) == 0 {
			return
		}
		s.next, granted = s.ask(first, at)
		granted = granted && s.Spec.Rate > 0 // the rate says when those behind can go
	}
}

// ask has it decided who of these can go. It returns when the rate allows the next one of them, and whether one can go.
func (s *simulation) ask(candidates []int, at time.Time) (next time.Time, granted bool) {
	s.looks += len(candidates)
	f := s.facts
	f.Waiting = make([]limit.Candidate, len(candidates))
	for n, i := range candidates {
		f.Waiting[n] = limit.Candidate{Holder: holder(i), Rank: s.Runs[i].At, Uses: []entities.LimitUse{s.use(i)}}
	}
	g := limit.Grant(f, at)
	for _, h := range g.Holders {
		i, _ := strconv.Atoi(h)
		if s.fates[i].state == waiting {
			s.leave(i)
		}
		s.fates[i] = fate{holding, at, s.fates[i].waited && at.After(s.Runs[i].At)}
		if s.Spec.OnFull == limit.CancelOldest {
			s.held[s.Runs[i].Key] = append(s.held[s.Runs[i].Key], i)
		}
		if r := s.Runs[i]; r.Took >= 0 {
			heap.Push(&s.ends, finish{at.Add(r.Took), i})
		}
	}
	return g.Next, len(g.Holders) > 0
}

// holder names a run so that the names sort as the numbers do.
func holder(i int) string { return fmt.Sprintf("%09d", i) }

// finish is the end of a run that holds places.
type finish struct {
	at  time.Time
	run int
}

// ends is a heap of ends, the next one first.
type ends []finish

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].run, e[j].run)) < 0
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(finish)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// outcome summarizes what became of the runs that came in the window.
func (s *simulation) outcome() Outcome {
	var o Outcome
	var waits []time.Duration
	keys := map[string]*KeyOutcome{}
	for i, r := range s.Runs {
		if r.At.Before(s.From) || r.At.After(s.To) {
			continue
		}
		k := keys[r.Key]
		if k == nil {
			k = &KeyOutcome{Key: r.Key}
			keys[r.Key] = k
		}
		f := s.fates[i]
		c := Counts{Runs: 1}
		switch f.state {
		case refused:
			c.Refused = 1
			if len(o.RefusedRuns) < maxRefused {
				o.RefusedRuns = append(o.RefusedRuns, r.ID)
			}
		case cancelled:
			c.Cancelled = 1
		case waiting:
			o.StillWaiting++
			f.granted = s.To
		default:
		}
		if f.waited && !f.granted.IsZero() {
			c.Waited, c.Longest = 1, f.granted.Sub(r.At)
			waits = append(waits, c.Longest)
		}
		o.add(c)
		k.add(c)
	}
	slices.Sort(waits)
	o.P50, o.P95 = percentile(waits, 50), percentile(waits, 95)
	o.Keys = affected(keys)
	return o
}

func (c *Counts) add(of Counts) {
	c.Runs += of.Runs
	c.Waited += of.Waited
	c.Refused += of.Refused
	c.Cancelled += of.Cancelled
	c.Longest = max(c.Longest, of.Longest)
}

// affected returns the keys that are affected most.
func affected(keys map[string]*KeyOutcome) []KeyOutcome {
	var list []KeyOutcome
	for _, k := range keys {
		if k.Waited+k.Refused+k.Cancelled > 0 {
			list = append(list, *k)
		}
	}
	slices.SortFunc(list, func(a, b KeyOutcome) int {
		return cmp.Or(cmp.Compare(b.Waited+b.Refused+b.Cancelled, a.Waited+a.Refused+a.Cancelled),
			cmp.Compare(b.Longest, a.Longest), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(len(list), maxKeys)]
}

// percentile returns the least of the sorted values that at least p percent do not exceed; 0 if there are none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}
