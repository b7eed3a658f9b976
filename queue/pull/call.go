package pull

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// Call is a call of an app's function that a worker makes.
type Call struct {
	// ID is that of the call's lease, and Run that of its run.
	ID, Run string
	// Keep names the worker that keeps the run's state, without which the call cannot be understood; empty for any.
	Keep string
	// Seen is the length of the run's log in the call; 0 if it has none.
	Seen   int64
	Header http.Header
	Body   []byte
}

// Answer is what a function answers to a call.
type Answer struct {
	Status                  int
	ContentType, RetryAfter string
	Body                    []byte
}

// The errors of calls without an answer.
var (
	// ErrNotTaken means that the call did not reach its worker.
	ErrNotTaken = errors.New("no worker has taken the call")
	// ErrLost means that the worker has been silent.
	ErrLost = errors.New("the worker that had the call is gone")
	// ErrOver means that the call is over, perhaps because another process has its answer.
	ErrOver = errors.New("the call is over")
)

// Fate is what has become of a call of which its process has not heard for a while.
type Fate int

// The fates.
const (
	FateLost Fate = iota // nobody has heard of it
	FateKept             // another process has
	FateOver             // it has no lease any more
)

// underWay is a call that a worker has. The mutex of all workers protects what changes.
type underWay[A comparable] struct {
	Call

	of      A
	by      *worker[A]
	place   *Place[A]
	taken   bool // a poll has taken it
	times   int  // that it was heard of
	silence *time.Timer
	answer  chan Answer
	settled chan struct{}
	counted bool // once it is settled
}

// heard notes that the worker has the call in hand. The caller holds the mutex.
func (u *underWay[A]) heard(by *worker[A]) {
	if u.by != by { // another request of the same process, after a silence
		u.by.busy--
		by.busy++
		u.by = by
	}
	u.times++
	u.silence.Reset(Silence)
}

// Place is a slot of a worker for the calls of one delivery, one after the other. Only one goroutine uses it.
type Place[A comparable] struct {
	all *Workers[A]
	of  A
	by  *worker[A]   // nil while it has no slot. The mutex of all workers protects it.
	at  *underWay[A] // its last call
	// InHand is set if the last call ended without an answer while a worker had it.
	InHand bool
}

// Reserve takes a slot of a worker of the app, of the one that got its last call longest ago. It returns nil if none
// has room. The place must be released.
func (w *Workers[A]) Reserve(of A) *Place[A] {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &Place[A]{all: w, of: of}
	if p.by = w.pick(of); p.by == nil {
		return nil
	}
	p.by.busy++
	return p
}

// pick returns the worker of the app that has room and got its last call longest ago; nil if none has room.
func (w *Workers[A]) pick(of A) *worker[A] {
	a := w.apps[of]
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.workers, func(by *worker[A]) bool { return by.free() > 0 })
	if i < 0 {
		return nil
	}
	by := a.workers[i]
	a.workers = append(slices.Delete(a.workers, i, i+1), by)
	return by
}

// named returns the worker of the app with the name, if it has room.
func (w *Workers[A]) named(of A, id string) *worker[A] {
	a := w.apps[of]
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.workers, func(by *worker[A]) bool { return by.id == id && by.free() > 0 })
	if i < 0 {
		return nil
	}
	return a.workers[i]
}

// Call gives a call to the worker, or to the one that keeps its run, and waits for the answer. If that one has no room,
// the answer is that it does not keep the run. Fate is asked when nothing was heard of the call for [Silence]. Call
// fails with [ErrNotTaken], [ErrLost], [ErrOver] and the context's error.
func (p *Place[A]) Call(ctx context.Context, c Call, fate func(context.Context) (Fate, error)) (Answer, error) {
	u, refused := p.give(c)
	if u == nil {
		return Answer{Status: http.StatusPreconditionFailed}, refused
	}
	defer p.end(u)
	for {
		select {
		case a := <-u.answer:
			return a, nil
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-u.silence.C:
		}
		if err := p.missed(ctx, u, fate); err != nil {
			return Answer{}, err
		}
	}
}

// give gives a call to a worker. It returns nil if none can have it, with an error unless another one could.
func (p *Place[A]) give(c Call) (*underWay[A], error) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.settle(true) // an answer to an earlier call has led to this one
	if p.by == nil {
		if p.by = p.all.pick(p.of); p.by != nil {
			p.by.busy++
		}
	}
	if p.by == nil {
		return nil, ErrNotTaken
	}
	if c.Keep != "" && c.Keep != p.by.id {
		keeps := p.all.named(p.of, c.Keep)
		if keeps == nil {
			return nil, nil
		}
		p.by.busy--
		keeps.busy++
		p.by = keeps
	}
	u := &underWay[A]{
		Call: c, of: p.of, by: p.by, place: p, silence: time.NewTimer(Silence),
		answer: make(chan Answer, 1), settled: make(chan struct{}),
	}
	p.at, p.InHand = u, false
	p.all.calls[c.ID] = u
	p.by.pending = append(p.by.pending, u)
	p.by.wake()
	return u, nil
}

// missed decides about a call of which nothing was heard. It returns nil if it goes on.
func (p *Place[A]) missed(ctx context.Context, u *underWay[A], fate func(context.Context) (Fate, error)) error {
	p.all.mu.Lock()
	taken, times := u.taken, u.times
	if !taken {
		u.by.slots = 0 // until it asks again
	}
	p.all.mu.Unlock()
	if !taken {
		return ErrNotTaken
	}
	f, err := fate(ctx)
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	switch {
	case u.times != times: // it was heard of meanwhile
	case err != nil || f == FateKept: // without the database, nobody else could make the call
		u.silence.Reset(keptEvery)
	case f == FateOver:
		return ErrOver
	default:
		u.by.slots = 0 // until it asks again
		return ErrLost
	}
	return nil
}

// end takes the call from its worker, unless it is answered.
func (p *Place[A]) end(u *underWay[A]) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	u.silence.Stop()
	if p.all.calls[u.ID] != u {
		return // it was answered
	}
	delete(p.all.calls, u.ID)
	u.by.pending = slices.DeleteFunc(u.by.pending, func(other *underWay[A]) bool { return other == u })
	p.by, p.InHand = u.by, u.taken
	if u.taken {
		u.by.wake() // its poll answers that the call is over
	}
}

// Release gives the slot back. Counted says whether the last answer counts.
func (p *Place[A]) Release(counted bool) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.settle(counted)
	if p.by != nil {
		p.by.busy--
		p.by = nil
	}
	p.all.roomAt(p.of)
}

// settle reports to the request that has brought the last answer whether it counts. The caller holds the mutex.
func (p *Place[A]) settle(counted bool) {
	if p.at != nil {
		p.at.counted = counted
		close(p.at.settled)
		p.at = nil
	}
}

// Answer passes on the answer to a call of the owner's run that a worker of this process has, and reports true, unless
// there is no such call, or it has an answer. Counts then waits until the delivery is over, and reports whether the
// answer counts.
func (w *Workers[A]) Answer(
	owner, run, id string, a Answer,
) (counts func(context.Context) (bool, error), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, found := w.calls[id]
	if !found || !u.taken || u.Run != run || w.ownerOf(u.of) != owner {
		return nil, false
	}
	delete(w.calls, id)
	u.by.busy--
	u.by.answered[id] = true
	u.place.by = nil
	w.roomAt(u.of)
	u.answer <- a
	return func(ctx context.Context) (bool, error) {
		select {
		case <-u.settled:
			return u.counted, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}, true
}
