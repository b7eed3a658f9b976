package queue

import (
	"context"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// quickCall is how long a call may take before the project may start another delivery in its place. Most of a call's
	// cost for the server is at its start.
	quickCall = 5 * time.Millisecond
	// startsPerProcessor is how many deliveries of all projects may start at once: enough for statements to share commits.
	// What a project alone has started is ahead of another one that comes, so it must not be much.
	startsPerProcessor = 32
	// unrecordedPerProcessor is how many deliveries of all projects may be unrecorded before no more start: enough to keep
	// the database busy.
	unrecordedPerProcessor = 32
	// longestStart is how long a delivery may take, and how long its call, before the project may start another one. It is
	// longer than a delivery that waits for nothing but the database.
	longestStart = 100 * time.Millisecond
	// longestWait is how long a message waits that is leased before it gets a start slot. Then it is given back: the time
	// that is left of the lease must be enough to call the function and to record its answer.
	longestWait = persistTimeout / 2
)

// startSlot is the right of a delivery to start. A project that starts thousands of deliveries at once would make the
// statements of others wait behind all of its own: while others are active, it starts as many as there are processors.
// Alone, it starts as many as it has slots: statements that run at once share commits.
//
// A delivery has a second unit, while it is unrecorded: until its call, for however long that waits for the database,
// and from its function's answer until that is recorded. This is what is done twice if the process dies. A delivery
// gives the unit back while its function takes long, and has one again from the answer on, even if its project then
// has more than its share. So a project begins no calls while that many of its deliveries wait for the database.
type startSlot struct {
	of  *deliverer
	key string
	// longest releases the start slot of a delivery that takes long.
	longest *time.Timer

	mu         sync.Mutex
	starting   bool // has a unit of startSlots
	unrecorded bool // has a unit of unrecorded
	calling    bool // the function has not answered
}

// startSlot waits until the project may start another delivery.
func (w *deliverer) startSlot(ctx context.Context, p entities.Project) (*startSlot, error) {
	if err := w.unrecorded.Take(ctx, string(p), 1, shareFactor); err != nil {
		return nil, err
	}
	if err := w.startSlots.Take(ctx, string(p), 1, shareFactor); err != nil {
		w.unrecorded.Release(string(p), 1)
		return nil, err
	}
	return w.newStartSlot(p), nil
}

// startSlotSoon is [deliverer.startSlot] that waits for longestWait at most.
func (w *deliverer) startSlotSoon(ctx context.Context, p entities.Project) (*startSlot, error) {
	if w.unrecorded.Try(string(p), 1, shareFactor) {
		if w.startSlots.Try(string(p), 1, shareFactor) {
			return w.newStartSlot(p), nil
		}
		w.unrecorded.Release(string(p), 1)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	return w.startSlot(ctx, p)
}

func (w *deliverer) newStartSlot(p entities.Project) *startSlot {
	s := &startSlot{of: w, key: string(p), starting: true, unrecorded: true}
	s.longest = time.AfterFunc(longestStart, s.tooLong)
	return s
}

// end releases the slot with its delivery.
func (s *startSlot) end() {
	s.longest.Stop()
	s.leave()
}

// leave releases the slot before the delivery waits for something. A delivery without one may call it.
func (s *startSlot) leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStart()
	s.endUnrecorded()
}

// tooLong releases the slot of a delivery that takes long. Unless its function does, it stays unrecorded.
func (s *startSlot) tooLong() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStart()
	if s.calling {
		s.endUnrecorded()
	}
}

func (s *startSlot) endStart() {
	if s.starting {
		s.of.startSlots.Release(s.key, 1)
	}
	s.starting = false
}

func (s *startSlot) beginUnrecorded() {
	if !s.unrecorded {
		s.of.unrecorded.Owe(s.key, 1, shareFactor)
	}
	s.unrecorded = true
}

func (s *startSlot) endUnrecorded() {
	if s.unrecorded {
		s.of.unrecorded.Release(s.key, 1)
	}
	s.unrecorded = false
}

// call begins a call. When it has taken quickCall, the project may start another delivery.
func (s *startSlot) call() (quick *time.Timer) {
	if s == nil {
		return time.NewTimer(quickCall)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginUnrecorded() // a delivery that has waited for something has released its slot
	s.calling = true
	s.longest.Reset(longestStart)
	return time.AfterFunc(quickCall, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endStart()
	})
}

// answered begins the recording of the function's answer.
func (s *startSlot) answered() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginUnrecorded()
	s.calling = false
}
