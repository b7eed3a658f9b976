// Package share keeps one client of a server from taking what others need: a [Pool] divides a limited resource between
// projects, and a [Pace] limits how long a sender may take.
package share

import (
	"context"
	"slices"
	"sync"
	"time"
)

// activePeriod is how long a key counts as active after it has taken units; up to twice as long.
const activePeriod = 100 * time.Millisecond

// Pool divides units of a resource between keys, such as projects. A key may hold at most a factor times the units that
// are free before it takes the last one (a dynamic threshold, Choudhury and Hahne 1998). So with factor 3 a key that is
// alone gets three quarters, and two busy keys get three sevenths each. Only a pool with no more units than the factor
// can be taken by one key alone. Nothing is reserved for a key that does not need it.
//
// A key that holds nothing may take any units that are free. With factor 0 that is all it gets: one request at a time.
//
// The factor is given with each request, because some requests matter more than others. All methods are safe for
// concurrent use.
type Pool struct {
	// Contended, if not 0, limits what a key may hold while others are active: while another one has just taken units,
	// in the last 100 to 200 ms. It is set before the pool is used.
	Contended int64

	units int64 // in all

	mu       sync.Mutex
	free     int64
	accounts map[string]*account
	// waiting has the accounts with claims, in the order in which they are served.
	waiting []*account
	// active and before have the keys that took units in the current period of activity, and in the one before.
	active, before map[string]struct{}
	aging          bool // endPeriod will be called
}

// account is what a key holds, and its claims that wait, the oldest first. It exists while there is either.
type account struct {
	key  string
	held int64
	// owed is what the key uses in addition, beyond what it may have.
	owed   int64
	claims []*claim
}

type claim struct {
	units, factor int64
	granted       chan struct{}
}

// NewPool returns a pool of the given number of units.
func NewPool(units int64) *Pool {
	return &Pool{units: units, free: units, accounts: map[string]*account{}, active: map[string]struct{}{}}
}

// Most returns how many units a key gets that is alone, at least one. A request for more waits until the key holds
// nothing.
func (p *Pool) Most(factor int64) int64 { return max(1, factor*(p.units+1)/(factor+1)) }

// Free returns the number of units that nobody holds.
func (p *Pool) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// Held returns the number of units that are not free.
func (p *Pool) Held() int64 { return p.units - p.Free() }

// HeldBy returns how many units the key holds, with those that it owes.
func (p *Pool) HeldBy(key string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.account(key).used()
}

// Room returns how many units the key could take now, one by one.
func (p *Pool) Room(key string, factor int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.account(key)
	if len(a.claims) > 0 {
		return 0
	}
	n := (factor*(p.free+1) - a.used()) / (factor + 1)
	if p.isContended(key) {
		n = min(n, p.Contended-a.used())
	}
	if a.used() == 0 {
		n = max(n, 1)
	}
	return max(0, min(n, p.free))
}

// Try takes units for the key if that is possible now, and nobody waits with the same key.
func (p *Pool) Try(key string, units, factor int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.try(p.account(key), units, factor)
}

func (p *Pool) try(a *account, units, factor int64) bool {
	if len(a.claims) > 0 || !p.fits(a, units, factor) {
		return false
	}
	p.grant(a, units)
	return true
}

// Take waits until the key can have the units. It fails with the context's error. Claims of one key are granted in
// order; they do not delay those of other keys. Keys that wait get units one after the other.
func (p *Pool) Take(ctx context.Context, key string, units, factor int64) error {
	a, c := p.begin(key, units, factor)
	if c == nil {
		return nil
	}
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
		return p.withdraw(ctx, a, c)
	}
}

// begin takes units, or returns a claim for them. The attempt and the claim are one: no release comes in between.
func (p *Pool) begin(key string, units, factor int64) (*account, *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.account(key)
	if p.try(a, units, factor) {
		return a, nil
	}
	c := &claim{units, factor, make(chan struct{})}
	p.accounts[key] = a
	if a.claims = append(a.claims, c); len(a.claims) == 1 {
		p.waiting = append(p.waiting, a)
	}
	return a, c
}

// withdraw ends a claim whose context has ended, unless it was granted at the same time.
func (p *Pool) withdraw(ctx context.Context, a *account, c *claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.claims, c)
	if i < 0 {
		return nil
	}
	a.claims = slices.Delete(a.claims, i, i+1)
	p.serve() // the next claim may be smaller
	p.forget(a)
	return ctx.Err()
}

// Owe takes units for what cannot wait. If the key may not have them, it owes them: they are taken from nobody, but
// count when the key asks for more.
func (p *Pool) Owe(key string, units, factor int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.account(key)
	if p.fits(a, units, factor) {
		p.grant(a, units)
		return
	}
	p.accounts[key] = a
	a.owed += units
}

// Release returns units that the key holds, first those that it owes.
func (p *Pool) Release(key string, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.accounts[key]
	owed := min(a.owed, units)
	a.owed -= owed
	a.held -= units - owed
	p.free += units - owed
	p.serve()
	p.forget(a)
}

func (a *account) used() int64 { return a.held + a.owed }

// account returns the account of a key, which is a new one if the key holds nothing and has no claims.
func (p *Pool) account(key string) *account {
	if a := p.accounts[key]; a != nil {
		return a
	}
	return &account{key: key}
}

// forget removes an account that is not in use.
func (p *Pool) forget(a *account) {
	if a.used() == 0 && len(a.claims) == 0 {
		delete(p.accounts, a.key)
	}
}

func (p *Pool) fits(a *account, units, factor int64) bool {
	left := p.free - units
	if left < 0 || a.used() == 0 {
		return left >= 0
	}
	// The unit that is taken last counts as free, so that the whole of a small pool is used.
	n := a.used() + units
	return n <= factor*(left+1) && (!p.isContended(a.key) || n <= p.Contended)
}

func (p *Pool) grant(a *account, units int64) {
	p.accounts[a.key] = a
	a.held += units
	p.free -= units
	if p.Contended == 0 {
		return
	}
	p.active[a.key] = struct{}{}
	if !p.aging {
		p.aging = true
		time.AfterFunc(activePeriod, p.endPeriod)
	}
}

// serve grants what is possible: one claim of each account after the other. An account whose claim does not fit keeps
// its place in the order; what is granted to others cannot make the claim fit.
func (p *Pool) serve() {
	var blocked []*account
	for len(p.waiting) > 0 {
		a := p.waiting[0]
		p.waiting = p.waiting[1:]
		if len(a.claims) == 0 {
			continue
		}
		c := a.claims[0]
		if !p.fits(a, c.units, c.factor) {
			blocked = append(blocked, a)
			continue
		}
		p.grant(a, c.units)
		close(c.granted)
		if a.claims = a.claims[1:]; len(a.claims) > 0 {
			p.waiting = append(p.waiting, a)
		}
	}
	p.waiting = blocked
}

// isContended reports whether the key is limited because others are active.
func (p *Pool) isContended(key string) bool {
	return p.Contended > 0 && (hasOther(p.active, key) || hasOther(p.before, key))
}

// hasOther reports whether the set has another key.
func hasOther(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return len(set) > 1 || len(set) == 1 && !ok
}

// endPeriod ends a period of activity. Periods follow one another until nobody is active.
func (p *Pool) endPeriod() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.active = p.active, map[string]struct{}{}
	if p.aging = len(p.before) > 0; p.aging {
		time.AfterFunc(activePeriod, p.endPeriod)
	}
	p.serve()
}
