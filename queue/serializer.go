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
	// callHold is how long a call holds back the next one of its run at most: several times what a replay takes, and
	// hardly noticed by a user where the call hangs.
	callHold = 200 * time.Millisecond
	// maxCallWait is how long a message waits at most, however many are before it: several times what 50 steps at once
	// take, and little of its lease.
	maxCallWait = 5 * time.Second
	// waitingShare is the fraction of the places for deliveries that may wait: else a run that is woken faster than it
	// replays would leave no places to others.
	waitingShare = 4
)

// serializer calls the wake-ups of one run one after the other, for clients that only replay in them. A replay reads
// the whole log and sends again what is open, so concurrent ones do the same work many times over. No wake-up is
// dropped, for any may be the one that sees the last event. It only waits, in the process and leased as it is, until
// the call before it is answered: by then the log is longer, and often the run has ended.
//
// A new event waits for no longer than one call: the next call sees all new events. Nothing else depends on the
// serializer, and it does not cover what other processes deliver.
type serializer struct {
	hold, maxWait time.Duration
	places        int // for messages that wait
	closed        context.Context
	close         context.CancelFunc

	mu      sync.Mutex
	waiting int
	runs    map[runKey]*runQueue
}

// runQueue is the wake-ups of a run while one of them holds back the others.
type runQueue struct {
	key     runKey
	current *wakeUp // the last one called, if it is neither answered nor past its hold
	waiting []*wakeUp
}

type runKey struct {
	project entities.Project
	run     entities.RunID
}

// wakeUp is a call that others wait for, or one that waits.
type wakeUp struct {
	queue  *runQueue
	called chan struct{} // closed when it may be called
	hold   *time.Timer
}

func newSerializer(deliveries int) *serializer {
	s := &serializer{
		hold: callHold, maxWait: maxCallWait, places: deliveries / waitingShare, runs: map[runKey]*runQueue{},
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// acquire waits until the function may be called with the message, and returns what must be called once it has
// answered. If the message has to wait, it fails with the context's cause, and with [ErrStopping] when the serializer
// is closed.
func (s *serializer) acquire(ctx context.Context, d Delivery) (answered func(), err error) {
	if !isWakeUp(d) {
		return func() {}, nil
	}
	own := s.add(d)
	if err := s.wait(ctx, own); err != nil {
		return nil, err
	}
	return func() { s.done(own) }, nil
}

// add calls the wake-up, or puts it into the queue of its run.
func (s *serializer) add(d Delivery) *wakeUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runKey{d.Project, d.RunID}
	q := s.runs[key]
	if q == nil {
		q = &runQueue{key: key}
		s.runs[key] = q
	}
	own := &wakeUp{queue: q, called: make(chan struct{})}
	if q.current == nil || !mayWait(d) || s.waiting == s.places {
		s.call(own)
		return own
	}
	q.waiting = append(q.waiting, own)
	s.waiting++
	return own
}

// wait waits until a wake-up is called, and calls it itself after the longest wait.
func (s *serializer) wait(ctx context.Context, own *wakeUp) error {
	select {
	case <-own.called:
		return nil
	default:
	}
	longest := time.NewTimer(s.maxWait)
	defer longest.Stop()
	select {
	case <-own.called:
		return nil
	case <-longest.C:
		s.callNow(own)
		return nil
	case <-ctx.Done():
		s.abandon(own)
		return context.Cause(ctx)
	case <-s.closed.Done():
		s.abandon(own)
		return ErrStopping
	}
}

// callNow calls a wake-up before those ahead of it.
func (s *serializer) callNow(own *wakeUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remove(own) {
		s.call(own)
	}
}

// abandon is for a wake-up that will not be called.
func (s *serializer) abandon(own *wakeUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remove(own) {
		s.advance(own)
	}
}

// remove takes a wake-up out of its queue, and reports whether it was there: else it has been called meanwhile. The
// lock is held.
func (s *serializer) remove(own *wakeUp) bool {
	q := own.queue
	i := slices.Index(q.waiting, own)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	s.waiting--
	return true
}

// call lets a wake-up go, which from then on holds back the next of its queue. The lock is held.
func (s *serializer) call(own *wakeUp) {
	own.queue.current = own
	own.hold = time.AfterFunc(s.hold, func() { s.done(own) })
	close(own.called)
}

// done ends the hold of a call.
func (s *serializer) done(own *wakeUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(own)
}

// advance calls the next of the queue, unless another call holds it back. The lock is held.
func (s *serializer) advance(own *wakeUp) {
	own.hold.Stop()
	q := own.queue
	if q.current != own {
		return
	}
	q.current = nil
	if len(q.waiting) == 0 {
		delete(s.runs, q.key)
		return
	}
	next := q.waiting[0]
	s.remove(next)
	s.call(next)
}

var flowTopic = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_workflow_`)

// flowHealth is how the topic of health checks of the flow route ends.
const flowHealth = "wkf_workflow_health_check"

// isWakeUp reports whether the message wakes a run whose client, as far as is known, only replays then.
func isWakeUp(d Delivery) bool {
	return d.RunID != "" && d.SpecVersion <= entities.SpecReplays &&
		flowTopic.MatchString(d.Topic) && !strings.HasSuffix(d.Topic, flowHealth)
}

// mayWait reports whether a wake-up may wait: not if it came before its run, which it may start; and not if it takes
// memory that others could use.
func mayWait(d Delivery) bool { return d.SpecVersion > 0 && len(d.Body) <= smallBody }
