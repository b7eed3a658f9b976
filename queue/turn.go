package queue

import (
	"context"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// callTurn is how long a call may take before the project may start another delivery in its place. Most of a call's
	// cost for the server is at its start.
	callTurn = 5 * time.Millisecond
	// turnsPerProcessor is how many deliveries of all projects may start at once: enough for statements to share commits.
	// What a project alone has started is ahead of another one that comes, so it must not be much.
	turnsPerProcessor = 32
	// unrecordedPerProcessor is how many deliveries of all projects may be unrecorded before no more start: enough to keep
	// the database busy.
	unrecordedPerProcessor = 32
	// longestTurn is how long a delivery may take, and how long its call, before the project may start another one. It is
	// longer than a delivery that waits for nothing but the database.
	longestTurn = 100 * time.Millisecond
	// longestWait is how long a message waits that is leased before its turn has come. Then it is given back: the time
	// that is left of the lease must be enough to call the function and to record its answer.
	longestWait = persistTimeout / 2
)

// turn is the right of a delivery to start. A project that starts thousands of deliveries at once would make the
// statements of others wait behind all of its own: while others are active, it starts as many as there are processors.
// Alone, it starts as many as it has slots: statements that run at once share commits.
//
// A delivery has a second unit, while it is unrecorded: until its call, for however long that waits for the database,
// and from its function's answer until that is recorded. This is what is done twice if the process dies. A delivery
// gives the unit back while its function takes long, and has one again from the answer on, even if its project then
// has more than its share. So a project begins no calls while that many of its deliveries wait for the database.
type turn struct {
	of  *deliverer
	key string
	// longest ends the turn of a delivery that takes long.
	longest *time.Timer

	mu         sync.Mutex
	starting   bool // has a unit of the turns
	unrecorded bool // has a unit of the unrecorded
	calling    bool // the function has not answered
}

// turn waits until the project may start another delivery.
func (w *deliverer) turn(ctx context.Context, p entities.Project) (*turn, error) {
	if err := w.unrecorded.Take(ctx, string(p), 1, shareFactor); err != nil {
		return nil, err
	}
	if err := w.turns.Take(ctx, string(p), 1, shareFactor); err != nil {
		w.unrecorded.Release(string(p), 1)
		return nil, err
	}
	return w.newTurn(p), nil
}

// turnSoon is [deliverer.turn] that waits for longestWait at most.
func (w *deliverer) turnSoon(ctx context.Context, p entities.Project) (*turn, error) {
	if w.unrecorded.Try(string(p), 1, shareFactor) {
		if w.turns.Try(string(p), 1, shareFactor) {
			return w.newTurn(p), nil
		}
		w.unrecorded.Release(string(p), 1)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	return w.turn(ctx, p)
}

func (w *deliverer) newTurn(p entities.Project) *turn {
	t := &turn{of: w, key: string(p), starting: true, unrecorded: true}
	t.longest = time.AfterFunc(longestTurn, t.tooLong)
	return t
}

// end ends the turn with its delivery.
func (t *turn) end() {
	t.longest.Stop()
	t.leave()
}

// leave ends the turn before the delivery waits for something. A delivery without a turn may leave it.
func (t *turn) leave() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endStart()
	t.endUnrecorded()
}

// tooLong ends the turn of a delivery that takes long. Unless its function does, it stays unrecorded.
func (t *turn) tooLong() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endStart()
	if t.calling {
		t.endUnrecorded()
	}
}

func (t *turn) endStart() {
	if t.starting {
		t.of.turns.Release(t.key, 1)
	}
	t.starting = false
}

func (t *turn) beginUnrecorded() {
	if !t.unrecorded {
		t.of.unrecorded.Owe(t.key, 1, shareFactor)
	}
	t.unrecorded = true
}

func (t *turn) endUnrecorded() {
	if t.unrecorded {
		t.of.unrecorded.Release(t.key, 1)
	}
	t.unrecorded = false
}

// call begins a call. When it has taken callTurn, the project may start another delivery.
func (t *turn) call() (quick *time.Timer) {
	if t == nil {
		return time.NewTimer(callTurn)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginUnrecorded() // a delivery that has waited for something has left its turn
	t.calling = true
	t.longest.Reset(longestTurn)
	return time.AfterFunc(callTurn, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.endStart()
	})
}

// answered begins the recording of the function's answer.
func (t *turn) answered() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginUnrecorded()
	t.calling = false
}
