package queue

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// turnTime is for how long a call keeps the next of its run waiting: several times what a replay takes, and no more
	// than a user hardly notices where the call hangs.
	turnTime = 200 * time.Millisecond
	// turnPatience is how long a message waits at most, however many are before it: several times what 50 steps at once
	// take, and little of its lease.
	turnPatience = 5 * time.Second
	// turnShare is which part of the deliveries that may be under way may wait for their turn, or a run that is woken
	// faster than it replays would leave no places to others.
	turnShare = 4
)

// turns has the wake-ups of a run called one after the other, where its client does nothing but replay in them. A
// replay reads the whole log and sends again what is open, so that many at once do the same many times over. None is
// left out, for any may be the one that sees the last event. It only waits, in the process and leased as it is, until
// the call before it is answered: by then there is more in the log, and often the run has ended.
//
// What is new to a run waits for no longer than a turn: whoever is called next sees it, whatever it was sent for.
// Nothing else depends on turns, and what other processes deliver takes none.
type turns struct {
	turn, patience time.Duration
	places         int // for messages that wait
	closed         context.Context
	close          context.CancelFunc

	mu      sync.Mutex
	waiting int
	lines   map[lineKey]*line
}

// line is what there is of a run's wake-ups, while there is a call that they have to wait for.
type line struct {
	key     lineKey
	call    *wakeUp // the last that began; neither answered nor older than its turn
	waiting []*wakeUp
}

type lineKey struct {
	project entities.Project
	run     entities.RunID
}

// wakeUp is a call, as far as others wait for it, or one that waits.
type wakeUp struct {
	line  *line
	begun chan struct{} // closed when it may be made
	over  *time.Timer
}

func newTurns(deliveries int) *turns {
	t := &turns{turn: turnTime, patience: turnPatience, places: deliveries / turnShare, lines: map[lineKey]*line{}}
	t.closed, t.close = context.WithCancel(context.Background())
	return t
}

// take waits until the function may be called with the message, and returns what must be called once it has answered.
// It fails with the context's cause, and with [ErrStopping] when the turns are closed, if the message has to wait.
func (t *turns) take(ctx context.Context, d delivery) (answered func(), err error) {
	if !isWakeUp(d) {
		return func() {}, nil
	}
	own := t.begin(d)
	if err := t.wait(ctx, own); err != nil {
		return nil, err
	}
	return func() { t.end(own) }, nil
}

// begin begins the message's call, or puts it in the line.
func (t *turns) begin(d delivery) *wakeUp {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := lineKey{d.Project, d.RunID}
	l := t.lines[key]
	if l == nil {
		l = &line{key: key}
		t.lines[key] = l
	}
	own := &wakeUp{line: l, begun: make(chan struct{})}
	if l.call == nil || !mayWait(d) || t.waiting == t.places {
		t.call(own)
		return own
	}
	l.waiting = append(l.waiting, own)
	t.waiting++
	return own
}

// wait waits for a call to begin, or has it begin when patience ends.
func (t *turns) wait(ctx context.Context, own *wakeUp) error {
	select {
	case <-own.begun:
		return nil
	default:
	}
	patience := time.NewTimer(t.patience)
	defer patience.Stop()
	select {
	case <-own.begun:
		return nil
	case <-patience.C:
		t.jump(own)
		return nil
	case <-ctx.Done():
		t.quit(own)
		return context.Cause(ctx)
	case <-t.closed.Done():
		t.quit(own)
		return ErrStopping
	}
}

// jump has a call begin before those that wait longer.
func (t *turns) jump(own *wakeUp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leave(own) {
		t.call(own)
	}
}

// quit is for a call that will not be made.
func (t *turns) quit(own *wakeUp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leave(own) {
		t.pass(own)
	}
}

// leave leaves the line, and reports whether it did: else it began meanwhile. The lock is held.
func (t *turns) leave(own *wakeUp) bool {
	l := own.line
	i := slices.Index(l.waiting, own)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	t.waiting--
	return true
}

// call begins a call, for which the next of its line waits. The lock is held.
func (t *turns) call(own *wakeUp) {
	own.line.call = own
	own.over = time.AfterFunc(t.turn, func() { t.end(own) })
	close(own.begun)
}

// end says that nobody has to wait for the call any more.
func (t *turns) end(own *wakeUp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(own)
}

// pass lets the next of the line begin, unless it waits for another call. The lock is held.
func (t *turns) pass(own *wakeUp) {
	own.over.Stop()
	l := own.line
	if l.call != own {
		return
	}
	l.call = nil
	if len(l.waiting) == 0 {
		delete(t.lines, l.key)
		return
	}
	next := l.waiting[0]
	t.leave(next)
	t.call(next)
}

var flowTopic = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_workflow_`)

// flowHealth is how the topic of health checks of the flow route ends.
const flowHealth = "wkf_workflow_health_check"

// isWakeUp is whether the message wakes a run whose client only replays then, as far as is known.
func isWakeUp(d delivery) bool {
	return d.RunID != "" && d.SpecVersion <= entities.SpecReplays &&
		flowTopic.MatchString(d.Topic) && !strings.HasSuffix(d.Topic, flowHealth)
}

// mayWait is whether a message that wakes its run may wait for its turn: not if it came before its run, of which it may
// be the beginning; and not if it takes memory that others could use.
func mayWait(d delivery) bool { return d.SpecVersion > 0 && len(d.Body) <= smallBody }
