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
	// callHold is the longest time for which a call holds back the next one of its run: several times the duration of a
	// replay, but hardly noticeable when the call hangs.
	callHold = 200 * time.Millisecond
	// maxCallWait is the longest time a message waits, however many are ahead of it: several times what 50 concurrent
	// steps take, and a small part of its lease.
	maxCallWait = 5 * time.Second
	// waitingShare limits the waiting messages to this fraction of all deliveries (one in four). Otherwise a run that
	// is woken faster than it replays would occupy every delivery.
	waitingShare = 4
)

// serializer calls the wake-ups of one run one after another, for clients that only replay when woken. A replay reads
// the whole log and sends all open work again, so concurrent replays repeat each other's work. No wake-up is dropped,
// since any of them may be the one that sees the last event. It only waits, in this process and under its lease, until
// the previous call is answered: by then the log is longer, and often the run has ended.
//
// A new event waits for at most one call, since the next call sees all new events. Serialization only saves work:
// correctness does not depend on it, and deliveries by other processes are not serialized.
type serializer struct {
	hold, maxWait time.Duration
	slots         int // how many messages may wait
	closed        context.Context
	close         context.CancelFunc

	mu      sync.Mutex
	waiting int
	runs    map[runKey]*runQueue
}

// runQueue has the wake-ups of a run while one of them holds back the others.
type runQueue struct {
	key     runKey
	current *wakeUp // the last one called, until it is answered or its hold ends
	waiting []*wakeUp
}

type runKey struct {
	project entities.Project
	run     entities.RunID
}

// wakeUp is a call that holds back others, or one that waits.
type wakeUp struct {
	queue  *runQueue
	called chan struct{} // closed when the function may be called
	hold   *time.Timer
}

func newSerializer(deliveries int) *serializer {
	s := &serializer{
		hold: callHold, maxWait: maxCallWait, slots: deliveries / waitingShare, runs: map[runKey]*runQueue{},
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// acquire waits until the function may be called with the message. The caller must call answered when the function has
// answered. If the message has to wait, its SeenSeq becomes unknown, since the log grows meanwhile, and acquire fails
// with the context's cause, and with [ErrStopping] when the serializer is closed.
func (s *serializer) acquire(ctx context.Context, d *Delivery) (answered func(), err error) {
	if !isWakeUp(*d) {
		return func() {}, nil
	}
	begin := func() {
		d.SeenSeq = 0
		d.turn.leave()
	}
	own := s.add(*d)
	if err := s.wait(ctx, own, begin); err != nil {
		return nil, err
	}
	return func() { s.end(own) }, nil
}

// add permits the wake-up's call, or puts it into the queue of its run.
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
	if q.current == nil || !mayWait(d) || s.waiting == s.slots {
		s.call(own)
		return own
	}
	q.waiting = append(q.waiting, own)
	s.waiting++
	return own
}

// wait waits until the wake-up may be called, and permits its call after maxWait. It calls begin if it has to wait.
func (s *serializer) wait(ctx context.Context, own *wakeUp, begin func()) error {
	select {
	case <-own.called:
		return nil
	default:
	}
	begin()
	select {
	case <-own.called:
		return nil
	case <-time.After(s.maxWait):
		s.callNow(own)
		return nil
	case <-ctx.Done():
		s.end(own)
		return context.Cause(ctx)
	case <-s.closed.Done():
		s.end(own)
		return ErrStopping
	}
}

// callNow permits the call of a wake-up before those ahead of it.
func (s *serializer) callNow(own *wakeUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remove(own) {
		s.call(own)
	}
}

// end removes a wake-up that will not be called, or ends the hold of one whose call was permitted.
func (s *serializer) end(own *wakeUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remove(own) {
		s.advance(own)
	}
}

// remove takes a wake-up out of its queue, and reports whether it was there. If not, its call has been permitted
// meanwhile. The caller holds the lock.
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

// call permits the call of a wake-up, which from then on holds back the next of its queue. The caller holds the lock.
func (s *serializer) call(own *wakeUp) {
	own.queue.current = own
	own.hold = time.AfterFunc(s.hold, func() { s.end(own) })
	close(own.called)
}

// advance permits the next call of the queue, unless another call holds it back. The caller holds the lock.
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

// flowHealth is the suffix of the topic of health checks of the flow route.
const flowHealth = "wkf_workflow_health_check"

// isWakeUp reports whether the message wakes a run whose client only replays then, and executes each step in a call of
// its own. An unknown client counts as one.
func isWakeUp(d Delivery) bool {
	return d.RunID != "" && d.SpecVersion <= entities.SpecReplays &&
		flowTopic.MatchString(d.Topic) && !strings.HasSuffix(d.Topic, flowHealth)
}

// mayWait reports whether a wake-up may wait. It may not if its run does not exist yet, since it may create the run, or
// if its body takes counted memory that other deliveries could use.
func mayWait(d Delivery) bool { return d.SpecVersion > 0 && len(d.Body) <= smallBody }
