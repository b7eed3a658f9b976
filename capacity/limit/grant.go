package limit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// barrierAfter is how often something may be passed over because another of its limits has no slot. From then on,
// nothing behind it gets a slot that it waits for, so that it gets all of them in the end.
const barrierAfter = 100

// Bucket is the slots of a limit with one key or, where that is said, for one tenant.
type Bucket struct{ Name, Key string }

// Candidate is what waits for slots.
type Candidate struct {
	Holder string
	// Rank is when it came, less its priority.
	Rank time.Time
	Uses []entities.LimitUse
	// Passed is how many have gone before it while another limit kept it from going.
	Passed int
	// MayRefuse is set for the first attempt at a step: it is refused, not kept waiting, if that is what its limit does.
	MayRefuse bool
	// Inside is set if its run, or one that waits for that, holds slots. No barrier holds it up: what the barrier waits
	// for may be those slots.
	Inside bool
}

// Facts are what decides who is next, read under the locks of the limits.
type Facts struct {
	// Limits has the limits that are locked. Limits that do not exist bound nothing.
	Limits map[string]Limit
	// Held is how many slots are taken, Total how many in all, and Tenants how many by each tenant of a fair limit.
	Held    map[Bucket]int
	Total   map[string]int
	Tenants map[Bucket]int
	// Rates is when keys have their whole burst again, and Served when tenants last got a slot.
	Rates, Served map[Bucket]time.Time
	// Waiting are those that may go now, in no order.
	Waiting []Candidate
}

// Grants is who gets slots.
type Grants struct {
	// Holders get all the slots that they wait for.
	Holders []string
	// Refused has the holders that are refused, with the limit that had no slot.
	Refused map[string]*FullError
	// Rates and Served are the clocks that change.
	Rates, Served map[Bucket]time.Time
	// Passed has the counts of candidates that change.
	Passed map[string]int
	// Next is when the first of those that wait for a rate may go; zero if none does.
	Next time.Time
}

// NewFacts returns facts without content.
func NewFacts() Facts {
	return Facts{
		Limits: map[string]Limit{}, Held: map[Bucket]int{}, Total: map[string]int{}, Tenants: map[Bucket]int{},
		Rates: map[Bucket]time.Time{}, Served: map[Bucket]time.Time{},
	}
}

// Grant decides who gets slots. It is pure, except that it counts in the facts what it grants.
//
// Who came first goes first; tenants of a fair limit take turns instead. Who cannot go because of another limit is
// passed over, so that no slot stays free that somebody could take, until it has been passed over [barrierAfter]
// times. A barrier does not hold up what is inside a run that holds slots: see [Candidate].
func Grant(f Facts, now time.Time) Grants {
	g := granter{
		Facts: f, now: now, served: now, blocked: map[scope]bool{}, over: map[scope][]int{},
		out: Grants{
			Rates: map[Bucket]time.Time{}, Served: map[Bucket]time.Time{}, Passed: map[string]int{},
			Refused: map[string]*FullError{},
		},
	}
	slices.SortFunc(g.Waiting, func(a, b Candidate) int {
		return cmp.Or(a.Rank.Compare(b.Rank), strings.Compare(a.Holder, b.Holder))
	})
	lines := g.line()
	for i := lines.next(); i >= 0; i = lines.next() {
		g.consider(i)
	}
	return g.out
}

type granter struct {
	Facts

	now time.Time
	out Grants
	// served is the clock of the last tenant that got a slot.
	served time.Time
	// blocked has what stands behind a barrier, and over who has been passed over there.
	blocked map[scope]bool
	over    map[scope][]int
}

// scope is what candidates compete for: the slots of a limit with one key or, if it has a total, all of them.
type scope struct {
	Bucket

	all bool
}

func (g *granter) scopes(u entities.LimitUse) []scope {
	s := []scope{{Bucket: bucketOf(u)}}
	if g.Limits[u.Name].Total > 0 {
		s = append(s, scope{Bucket{Name: u.Name}, true})
	}
	return s
}

// consider grants slots to a candidate, or passes it over. It may become a barrier only if nothing but slots is
// missing: others must not wait for what a pause or a rate keeps from going.
func (g *granter) consider(i int) {
	c := g.Waiting[i]
	if c.MayRefuse && g.refuse(c) {
		return
	}
	at, possible := g.earliest(c)
	if !possible {
		return
	}
	if at.After(g.now) {
		if g.out.Next.IsZero() || at.Before(g.out.Next) {
			g.out.Next = at
		}
		return
	}
	if g.fits(c) {
		g.grant(c)
		return
	}
	for _, u := range c.Uses {
		for _, s := range g.scopes(u) {
			g.over[s] = append(g.over[s], i)
			g.blocked[s] = g.blocked[s] || c.Passed >= barrierAfter
		}
	}
}

// refuse refuses a candidate if a limit that refuses has no room for it, and reports whether it did.
func (g *granter) refuse(c Candidate) bool {
	for _, u := range c.Uses {
		if g.Limits[u.Name].OnFull != Reject {
			continue
		}
		alone := Candidate{Uses: []entities.LimitUse{u}, Inside: c.Inside}
		if next, ok := g.hasRoom(alone); !ok {
			g.out.Refused[c.Holder] = g.full(u, next, g.now)
			return true
		}
	}
	return false
}

// hasRoom reports whether there is room for the candidate; if only a rate has none, next is when it will.
func (g *granter) hasRoom(c Candidate) (next time.Time, ok bool) {
	next, possible := g.earliest(c)
	return next, possible && !next.After(g.now) && g.fits(c)
}

// earliest returns when the rates allow the candidate to go. It reports false if a limit is paused, or too
// small for it.
func (g *granter) earliest(c Candidate) (at time.Time, possible bool) {
	at = g.now
	for _, u := range c.Uses {
		l := g.Limits[u.Name]
		if most := l.Most(); l.Paused || most > 0 && CostOf(u) > most {
			return at, false
		}
		if t := g.allowedAt(u); t.After(at) {
			at = t
		}
	}
	return at, true
}

// fits reports whether all limits of the candidate have room for it, and no barrier is before it.
func (g *granter) fits(c Candidate) bool {
	for _, u := range c.Uses {
		l, n := g.Limits[u.Name], CostOf(u)
		if l.PerKey > 0 && g.Held[bucketOf(u)]+n > l.PerKey || l.Total > 0 && g.Total[u.Name]+n > l.Total {
			return false
		}
		for _, s := range g.scopes(u) {
			if g.blocked[s] && !c.Inside {
				return false
			}
		}
	}
	return true
}

// allowedAt returns when the rate allows the use. It is the generic cell rate algorithm: each start moves the key's
// clock one interval on, and the clock may be no more than a burst ahead.
func (g *granter) allowedAt(u entities.LimitUse) time.Time {
	l := g.Limits[u.Name]
	if l.Rate == 0 {
		return g.now
	}
	return g.afterStart(u).Add(-time.Duration(l.Burst) * l.Interval())
}

// afterStart returns the clock of the key after the use.
func (g *granter) afterStart(u entities.LimitUse) time.Time {
	from := g.now
	if at := g.Rates[bucketOf(u)]; at.After(from) {
		from = at
	}
	return from.Add(time.Duration(CostOf(u)) * g.Limits[u.Name].Interval())
}

func (g *granter) grant(c Candidate) {
	g.out.Holders = append(g.out.Holders, c.Holder)
	passed := map[int]bool{}
	for _, u := range c.Uses {
		p, t, n := bucketOf(u), tenantOf(u), CostOf(u)
		if g.Limits[u.Name].Rate > 0 {
			g.Rates[p] = g.afterStart(u)
			g.out.Rates[p] = g.Rates[p]
		}
		if g.Limits[u.Name].Fair {
			g.served = g.served.Add(time.Microsecond)
			g.Served[t], g.out.Served[t] = g.served, g.served
		}
		g.Held[p] += n
		g.Total[u.Name] += n
		g.Tenants[t] += n
		for _, s := range g.scopes(u) {
			for _, i := range g.over[s] {
				passed[i] = true
			}
		}
	}
	for i := range passed {
		g.pass(&g.Waiting[i])
	}
}

// pass counts that somebody has gone before the candidate.
func (g *granter) pass(c *Candidate) {
	c.Passed++
	g.out.Passed[c.Holder] = c.Passed
	if c.Passed < barrierAfter {
		return
	}
	for _, u := range c.Uses {
		for _, s := range g.scopes(u) {
			g.blocked[s] = true
		}
	}
}

// CostOf returns how many slots the use takes.
func CostOf(u entities.LimitUse) int { return max(1, u.Cost) }

func bucketOf(u entities.LimitUse) Bucket { return Bucket{u.Name, u.Key} }

// tenantOf returns the tenant of a use.
func tenantOf(u entities.LimitUse) Bucket { return Bucket{u.Name, cmp.Or(u.Tenant, u.Key)} }
