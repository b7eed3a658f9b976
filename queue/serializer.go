package queue

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// callHold is the longest time for which a call holds back the next one of its run: several times the duration of a
	// replay, but hardly noticeable when the call hangs.
	callHold = 200 * time.Millisecond
	// maxCallWait is the longest time a message waits, however many are ahead of it: several times what 50 concurrent
	// steps take, and a small part of its lease.
	maxCallWait = 5 * time.Second
	// busyPause is after how long a message of a run that is being called is due again.
	busyPause = time.Second
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
//
// The orchestrator of a run with a fence is called strictly one at a time: until the call before is answered, which is
// what its client expects of a queue. A second one would be sent away by the fence, for seconds. So it does not begin
// while another process calls one either; see [deliverer.isCalledElsewhere].
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
	strict bool          // it neither holds back for a limited time only, nor is called while another one is
	called chan struct{} // closed when the function may be called
	hold   *time.Timer
}

// errRunBusy is the error of a delivery that has to come again, because another one of its run is under way.
var errRunBusy = errors.New("another delivery of the run is under way")

func newSerializer(deliveries int) *serializer {
	s := &serializer{
		hold: callHold, maxWait: maxCallWait, slots: deliveries / waitingShare, runs: map[runKey]*runQueue{},
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// acquire waits until the function may be called with the message. The caller must call answered when the function has
// answered. If the message has to wait, its LeasedSeq becomes unknown, since the log grows meanwhile, and acquire fails
// with the context's cause, with [ErrStopping] when the serializer is closed, and with errRunBusy.
func (s *serializer) acquire(ctx context.Context, d *Delivery) (answered func(), err error) {
	if !isWakeUp(*d) && !d.isOrchestrator() {
		return func() {}, nil
	}
	begin := func() {
		d.LeasedSeq = 0
		d.startSlot.leave()
	}
	own := s.add(*d)
	if own == nil {
		return nil, errRunBusy
	}
	if err := s.wait(ctx, own, begin); err != nil {
		return nil, err
	}
	return func() { s.end(own) }, nil
}

// awaitRun is [serializer.acquire] for a delivery of this process, which also fails with errRunBusy while another
// process calls the orchestrator of the run.
func (w *deliverer) awaitRun(ctx context.Context, d *Delivery) (answered func(), err error) {
	if answered, err = w.serializer.acquire(ctx, d); err != nil || !d.isOrchestrator() {
		return answered, err
	}
	elsewhere, err := w.isCalledElsewhere(ctx, *d)
	if err != nil {
		w.logger.WarnContext(ctx, "find other deliveries of the run", "message", d.ID, "error", err)
	}
	if elsewhere {
		answered()
		return nil, errRunBusy
	}
	return answered, nil
}

// isCalledElsewhere reports whether another process has leased an earlier message for the orchestrator of the same run.
// Handles grow with time, so of two processes that ask at the same time at most one gives way. It locks nothing: of
// two that claim at once, neither may see the other, or their clocks may differ. Then both call, and the fence decides.
// A lease that its function has extended does not count: it outlives its process, and must not hold the run up.
func (w *deliverer) isCalledElsewhere(ctx context.Context, d Delivery) (elsewhere bool, err error) {
	err = pg.NewPool(w.queue.pool).QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM (
				SELECT lease, holder FROM messages
				WHERE project = $1 AND deployment_id = $2 AND run_id = $3 AND work = '' AND topic = $4 OFFSET 0) AS m
			WHERE lease > '' AND lease < $5 AND holder NOT IN ('', $6))`,
		d.Project, d.DeploymentID, d.RunID, d.Topic, d.Lease, w.heartbeat.ID).Scan(&elsewhere)
	return elsewhere, pg.Wrap(err, "find deliveries of a run")
}

// add permits the wake-up's call, or puts it into the queue of its run. It returns nil if neither is possible.
func (s *serializer) add(d Delivery) *wakeUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := runKey{d.Project, d.RunID}
	q := s.runs[key]
	if q == nil {
		q = &runQueue{key: key}
		s.runs[key] = q
	}
	own := &wakeUp{queue: q, strict: d.isOrchestrator(), called: make(chan struct{})}
	switch waits := mayWait(d) && s.waiting < s.slots; {
	case q.current == nil, !own.strict && !waits:
		s.call(own)
		return own
	case !waits:
		return nil
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
		if own.strict && s.leave(own) {
			return errRunBusy
		}
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

// leave removes a wake-up that waits, and reports whether it still did.
func (s *serializer) leave(own *wakeUp) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(own)
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
	if !own.strict {
		own.hold = time.AfterFunc(s.hold, func() { s.end(own) })
	}
	close(own.called)
}

// advance permits the next call of the queue, unless another call holds it back. The caller holds the lock.
func (s *serializer) advance(own *wakeUp) {
	if own.hold != nil {
		own.hold.Stop()
	}
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

// isOrchestrator reports whether the message is for the orchestrator of a run with a fence. Its topic is that of the
// run; those of the steps go on with the step.
func (d Delivery) isOrchestrator() bool {
	return d.SpecVersion >= entities.SpecFence && d.RunID != "" && flowTopic.MatchString(d.Topic) &&
		strings.HasSuffix(d.Topic, "_"+string(d.RunID))
}

// mayWait reports whether a wake-up may wait. It may not if its run does not exist yet, since it may create the run, or
// if its body takes counted memory that other deliveries could use.
func mayWait(d Delivery) bool { return d.SpecVersion > 0 && len(d.Body) <= smallBody }
