package pull

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// Silence is how long a worker, or a call in its hands, is not heard of until it counts as lost.
	Silence = 3 * time.Second
	// cutSilence replaces it after the worker's connection has ended.
	cutSilence = time.Second
	// keptEvery is how often it is checked whether another process has heard of a call that was not heard of here.
	keptEvery = time.Second
	// workingWait is how long a poll waits at most that names calls in hand: the next one says that they are worked on.
	workingWait = time.Second

	// MaxCalls is how many calls a worker may have in hand.
	MaxCalls = 1000
	// MaxWorkers is how many workers of one owner a process knows at a time.
	MaxWorkers = 1000
	// maxTaken is how many bytes of bodies a poll gets, unless a single body is larger.
	maxTaken = 8 << 20
)

// ErrTooMany refuses a worker beyond [MaxWorkers].
var ErrTooMany = errors.New("too many workers")

// Workers has the workers that ask this process for calls of apps A, and the calls that they have. A worker is a
// process that an app names; it is known from its first poll until it is silent. It is safe for concurrent use.
type Workers[A comparable] struct {
	mu    sync.Mutex
	apps  map[A]*app[A]
	calls map[string]*underWay[A] // given to workers and not answered, by ID
	// owned counts the workers by whom [Workers.OwnerOf] names.
	owned   map[string]int
	ownerOf func(A) string
}

// app has the workers of an app.
type app[A comparable] struct {
	// workers are in the order in which they got their last calls, the one for which that is longest ago first.
	workers []*worker[A]
	// room has an item when a worker may have come, or may have room for a call again.
	room chan struct{}
}

// worker is a process that asks for calls. The mutex of all workers protects it.
type worker[A comparable] struct {
	id    string
	of    A
	slots int // for calls, all in all; 0 while it may be gone
	busy  int // slots that are reserved, or have calls of this process
	other int // calls of other processes that it has in hand
	// pending are the calls that no poll has taken yet, and answered the IDs of those answered since the last poll.
	pending  []*underWay[A]
	answered map[string]bool
	poll     *WorkPoll[A] // the one that waits; nil if none does
	expiry   *time.Timer
	gone     bool
}

func (w *worker[A]) free() int { return w.slots - w.busy - w.other }

func (w *worker[A]) wake() {
	if w.poll != nil {
		poke(w.poll.wake)
	}
}

// NewWorkers returns no workers. Each owner of apps may have up to [MaxWorkers] of them.
func NewWorkers[A comparable](ownerOf func(A) string) *Workers[A] {
	return &Workers[A]{
		apps: map[A]*app[A]{}, calls: map[string]*underWay[A]{}, owned: map[string]int{}, ownerOf: ownerOf,
	}
}

// WorkPoll is a request of a worker.
type WorkPoll[A comparable] struct {
	// Unknown are the calls in the worker's hands that this process has not made, or of which it expects no answer.
	Unknown []string

	all    *Workers[A]
	worker *worker[A]
	known  []string // the other calls in its hands
	wake   chan struct{}
}

// Join begins a request of a worker of the app, which has room for so many calls, all in all, and names those that it
// has in hand. It ends an earlier poll that still waits. It must be ended by [WorkPoll.Leave] or [WorkPoll.Lose]. It
// fails with [ErrTooMany].
func (w *Workers[A]) Join(of A, id string, slots int, hand []string) (*WorkPoll[A], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by, err := w.find(of, id)
	if err != nil {
		return nil, err
	}
	by.expiry.Stop()
	p := &WorkPoll[A]{all: w, worker: by, wake: make(chan struct{}, 1)}
	earlier := by.poll
	by.poll, by.slots, by.other = p, slots, 0
	if earlier != nil {
		poke(earlier.wake)
	}
	for _, id := range hand {
		if u, ok := w.calls[id]; ok && u.of == of && u.taken {
			u.heard(by)
			p.known = append(p.known, id)
			continue
		}
		p.Unknown = append(p.Unknown, id)
		if !by.answered[id] {
			by.other++
		}
	}
	by.answered = map[string]bool{}
	if len(by.pending) > 0 {
		poke(p.wake)
	}
	w.roomAt(of)
	return p, nil
}

// find returns the worker, which it adds if it is not known.
func (w *Workers[A]) find(of A, id string) (*worker[A], error) {
	a := w.apps[of]
	if a == nil {
		a = &app[A]{room: make(chan struct{}, 1)}
	}
	if i := slices.IndexFunc(a.workers, func(other *worker[A]) bool { return other.id == id }); i >= 0 {
		return a.workers[i], nil
	}
	owner := w.ownerOf(of)
	if w.owned[owner] >= MaxWorkers {
		return nil, fmt.Errorf("%w: %d ask this server for calls", ErrTooMany, MaxWorkers)
	}
	w.owned[owner]++
	by := &worker[A]{id: id, of: of, answered: map[string]bool{}}
	by.expiry = time.AfterFunc(Silence, func() { w.remove(by) })
	a.workers = append(a.workers, by)
	w.apps[of] = a
	return by, nil
}

// remove removes a worker that is silent. Calls in its hands find that out for themselves.
func (w *Workers[A]) remove(by *worker[A]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if by.poll != nil || by.gone {
		return
	}
	by.gone = true
	a, owner := w.apps[by.of], w.ownerOf(by.of)
	a.workers = slices.DeleteFunc(a.workers, func(other *worker[A]) bool { return other == by })
	if w.owned[owner]--; w.owned[owner] == 0 {
		delete(w.owned, owner)
	}
	w.roomAt(by.of)
	if len(a.workers) == 0 {
		delete(w.apps, by.of)
	}
}

// roomAt says that there may be room for a call. The caller holds the mutex.
func (w *Workers[A]) roomAt(of A) {
	if a := w.apps[of]; a != nil {
		poke(a.room)
	}
}

// Room returns a channel that receives an item when a worker of the app may have room again, or when the last one is
// gone; nil if the app has no worker.
func (w *Workers[A]) Room(of A) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.apps[of]; a != nil {
		return a.room
	}
	return nil
}

// Free returns how many calls the workers of the app have room for.
func (w *Workers[A]) Free(of A) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.apps[of]; a != nil {
		for _, by := range a.workers {
			n += max(0, by.free())
		}
	}
	return n
}

// Wait returns when the worker has got a call, when one in its hands is over, or after a second if it has any; or when
// done is closed.
func (p *WorkPoll[A]) Wait(done <-chan struct{}) {
	working := make(<-chan time.Time)
	if len(p.known)+len(p.Unknown) > 0 {
		timer := time.NewTimer(workingWait)
		defer timer.Stop()
		working = timer.C
	}
	select {
	case <-p.wake:
	case <-working:
	case <-done:
	}
}

// Take returns the calls that the worker gets, and those in its hands that are over. A poll that another one has ended
// gets none.
func (p *WorkPoll[A]) Take() (calls []Call, over []string) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	for _, id := range p.known {
		if _, ok := p.all.calls[id]; !ok {
			over = append(over, id)
		}
	}
	w := p.worker
	if w.poll != p {
		return nil, over
	}
	bytes := 0
	for len(w.pending) > 0 && (len(calls) == 0 || bytes+len(w.pending[0].Body) <= maxTaken) {
		u := w.pending[0]
		w.pending = w.pending[1:]
		u.taken = true
		u.heard(w)
		bytes += len(u.Body)
		calls = append(calls, u.Call)
	}
	return calls, over
}

// Lose ends a request whose answer did not arrive. Another worker gets the calls in it, and the worker is soon lost
// unless it asks again: its connection ends when it dies.
func (p *WorkPoll[A]) Lose(calls []Call) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	for _, c := range calls {
		if u, ok := p.all.calls[c.ID]; ok {
			u.taken = false
			u.silence.Reset(0)
		}
	}
	w := p.worker
	if w.poll != p {
		return // it has asked again
	}
	w.poll, w.slots = nil, 0
	w.expiry.Reset(cutSilence)
	for _, u := range p.all.calls {
		if u.by == w && u.taken {
			u.silence.Reset(cutSilence)
		}
	}
}

// Leave ends the request whose answer has arrived. The worker is known for [Silence] more.
func (p *WorkPoll[A]) Leave() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if w := p.worker; w.poll == p {
		w.poll = nil
		w.expiry.Reset(Silence)
	}
}

// poke puts an item into a channel that has room for one, unless it is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
