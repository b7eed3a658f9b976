// Package pull brings deliveries together with the polls of apps that ask for them, within one process.
package pull

import (
	"slices"
	"sync"
)

// Polls has the polls that wait for deliveries D of apps A. It is safe for concurrent use.
type Polls[A comparable, D any] struct {
	mu      sync.Mutex
	waiting map[A][]*Poll[A, D] // the one that has waited longest first
}

// NewPolls returns no polls.
func NewPolls[A comparable, D any]() *Polls[A, D] {
	return &Polls[A, D]{waiting: map[A][]*Poll[A, D]{}}
}

// Poll is a request of an app for deliveries.
type Poll[A comparable, D any] struct {
	all *Polls[A, D]
	of  A

	// The mutex of all polls protects these.
	slots   int // that no delivery has or will have
	pending int // deliveries that will come
	got     []D

	filled chan struct{}
}

// Join adds a poll for up to so many deliveries of an app. It must be ended by [Poll.Leave].
func (d *Polls[A, D]) Join(of A, slots int) *Poll[A, D] {
	p := &Poll[A, D]{all: d, of: of, slots: slots, filled: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[of] = append(d.waiting[of], p)
	return p
}

// Reserve takes a slot in a poll of the app, or returns nil if there is none. The poll waits until the caller calls
// give: with the delivery, or with nil if there will be none.
func (d *Polls[A, D]) Reserve(of A) (give func(*D)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.waiting[of], func(p *Poll[A, D]) bool { return p.slots > 0 })
	if i < 0 {
		return nil
	}
	p := d.waiting[of][i]
	p.slots--
	p.pending++
	return p.give
}

func (p *Poll[A, D]) give(delivery *D) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.pending--
	if delivery == nil {
		p.slots++
	} else {
		p.got = append(p.got, *delivery)
	}
	if p.pending == 0 {
		select {
		case p.filled <- struct{}{}:
		default:
		}
	}
}

// Filled receives an item when the poll may have got a delivery.
func (p *Poll[A, D]) Filled() <-chan struct{} { return p.filled }

// Leave removes the poll, waits for the deliveries that will come, and returns all that it got.
func (p *Poll[A, D]) Leave() []D {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	rest := slices.DeleteFunc(p.all.waiting[p.of], func(other *Poll[A, D]) bool { return other == p })
	if p.all.waiting[p.of] = rest; len(rest) == 0 {
		delete(p.all.waiting, p.of)
	}
	for p.pending > 0 {
		p.all.mu.Unlock()
		<-p.filled
		p.all.mu.Lock()
	}
	return p.got
}
