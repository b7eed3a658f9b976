// Package share keeps one client of a server from taking what others need: a [Pool] divides a limited resource between
// projects, and a [Pace] limits how long a sender may take. It imports nothing of the module.
package share

import (
	"context"
	"slices"
	"sync"
)

// Pool divides units of a resource between keys, such as projects. A key may hold at most a factor times the units that
// are free after it has taken its own (a dynamic threshold, Choudhury and Hahne 1998). So with factor 3 a key that is
// alone gets three quarters, two busy keys get three sevenths each, and there is always room for another key: a key that
// holds nothing may take any units that are free.
//
// The factor is given with each request, because some requests matter more than others. All methods are safe for
// concurrent use.
type Pool struct {
	mu       sync.Mutex
	free     int64
	accounts map[string]*account
	// waiting has the accounts whose claims wait, in the order in which they get their turns.
	waiting []*account
}

// account is what a key holds, and its claims that wait, the oldest first.
type account struct {
	held   int64
	claims []*claim
}

type claim struct {
	units, factor int64
	granted       chan struct{}
}

// NewPool returns a pool of the given number of units.
func NewPool(units int64) *Pool { return &Pool{free: units, accounts: map[string]*account{}} }

// Try takes units for the key if that is possible now, and nobody waits with the same key.
func (p *Pool) Try(key string, units, factor int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.try(key, units, factor)
}

func (p *Pool) try(key string, units, factor int64) bool {
	a := p.accounts[key]
	if a == nil {
		a = &account{}
	}
	if len(a.claims) > 0 || !p.fits(a, units, factor) {
		return false
	}
	p.accounts[key] = a
	p.grant(a, units)
	return true
}

func (p *Pool) fits(a *account, units, factor int64) bool {
	left := p.free - units
	return left >= 0 && (a.held == 0 || a.held+units <= factor*left)
}

func (p *Pool) grant(a *account, units int64) {
	a.held += units
	p.free -= units
}

// Take waits until the key can have the units. It fails with the context's error. Claims of one key are granted in
// order; they do not delay those of other keys.
func (p *Pool) Take(ctx context.Context, key string, units, factor int64) error {
	p.mu.Lock()
	if p.try(key, units, factor) {
		p.mu.Unlock()
		return nil
	}
	a := p.accounts[key]
	if a == nil {
		a = &account{}
		p.accounts[key] = a
	}
	c := &claim{units: units, factor: factor, granted: make(chan struct{})}
	if a.claims = append(a.claims, c); len(a.claims) == 1 {
		p.waiting = append(p.waiting, a)
	}
	p.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
		return p.withdraw(ctx, key, a, c)
	}
}

// withdraw ends a claim whose context has ended, unless it was granted at the same time.
func (p *Pool) withdraw(ctx context.Context, key string, a *account, c *claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	default:
	}
	a.claims = slices.DeleteFunc(a.claims, func(other *claim) bool { return other == c })
	p.serve() // the next claim may be smaller
	p.forget(key, a)
	return ctx.Err()
}

// Give returns units that the key holds.
func (p *Pool) Give(key string, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.accounts[key]
	a.held -= units
	p.free += units
	p.serve()
	p.forget(key, a)
}

// Free returns the number of units that nobody holds.
func (p *Pool) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// serve grants what is possible: one claim of each account in turn, until no claim fits.
func (p *Pool) serve() {
	for granted := true; granted; {
		granted = false
		for _, a := range slices.Clone(p.waiting) {
			if len(a.claims) > 0 && p.fits(a, a.claims[0].units, a.claims[0].factor) {
				p.grant(a, a.claims[0].units)
				close(a.claims[0].granted)
				a.claims = a.claims[1:]
				granted = true
			}
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(a *account) bool { return len(a.claims) == 0 })
	}
	if n := len(p.waiting); n > 1 {
		p.waiting = append(p.waiting[1:], p.waiting[0])
	}
}

// forget removes an account that is not in use.
func (p *Pool) forget(key string, a *account) {
	if a.held == 0 && len(a.claims) == 0 {
		delete(p.accounts, key)
	}
}
