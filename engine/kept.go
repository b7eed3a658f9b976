package engine

import (
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// maxKept and maxKeptBytes limit the runs that a server remembers.
	maxKept      = 16 << 10
	maxKeptBytes = 64 << 20
	// keptBytes is what a run without a state takes, about, stateBytes a small state, and eventBytes an event besides its
	// payload.
	keptBytes  = 512
	stateBytes = 8 << 10
	eventBytes = 128
)

// keptRuns remembers of the runs that were answered last who keeps their state: a process of the app, as the last
// answer has said, or this server if the run is that of a flow. It is only a hint: losing it costs a call with the
// whole log, and a wrong one a call that the function refuses.
type keptRuns struct {
	*cache.Cache[entities.RunID, keptRun]
}

// keptRun is a run whose state is kept.
type keptRun struct {
	// seq is the position up to which the state knows the log; 0 if nobody keeps the run.
	seq int64
	// by is the process of the app, until when it forgets the run, and url where it was called.
	by, url string
	until   time.Time
	// state is that of a flow; nil if a process of an app keeps it.
	state *keptState
}

// keptState is what a flow knows of a run: the fold of the log up to a position, and events after that.
type keptState struct {
	*flow.State

	// after are the next events of the log, which the next decision is about too.
	after []flow.Event
	// undecided is set while nobody has carried out what was decided last. Lease is that of the invocation that is about
	// to.
	undecided bool
	lease     string
	// needsInvocation is set if what was decided last cannot be written inline, until an invocation has carried it out.
	needsInvocation bool
}

// upTo returns the position up to which the log is known.
func (k *keptState) upTo() int64 { return k.Seq() + int64(len(k.after)) }

// fold applies the events that come after the state.
func (k *keptState) fold(run contract.Run, events []flow.Event) error {
	apply := k.Apply
	if k.undecided {
		apply = k.Continue
	}
	k.after, k.undecided, k.lease = nil, true, ""
	return apply(run, events)
}

func newKeptRuns() keptRuns {
	return keptRuns{cache.New(maxKept, maxKeptBytes, func(_ entities.RunID, k keptRun) int { return k.memory() })}
}

// memory returns how many bytes of memory the run takes, about.
func (k keptRun) memory() int {
	if k.state == nil {
		return keptBytes
	}
	n := int(k.state.Bytes()) + stateBytes
	for _, e := range k.state.after {
		n += len(e.Payload) + eventBytes
	}
	return n
}

// answered notes that the answer to an invocation was carried out, and which process keeps the run's state according to
// it; nil if none does.
func (k keptRuns) answered(d queue.Delivery, keep *contract.Keep, now time.Time) {
	if keep != nil {
		k.Put(d.RunID, keptRun{seq: keep.Seq, by: keep.By, until: keep.Until(now), url: d.URL})
		return
	}
	if kept, _ := k.Peek(d.RunID); kept.state == nil {
		k.Remove(d.RunID)
	}
	k.With(d.RunID, func(kept keptRun) {
		if s := kept.state; s != nil && s.lease == d.Lease {
			s.undecided, s.needsInvocation, s.lease = false, false, ""
		}
	})
}

// find returns what is remembered of the run. It forgets what has expired, what was said at another URL, and what
// exceeds the run's log: a failover may have lost events.
func (k keptRuns) find(run entities.Run, url string, now time.Time) keptRun {
	kept, _ := k.Get(run.ID)
	if kept.seq > run.LastSeq || kept.state == nil && (kept.url != url || !now.Before(kept.until)) {
		k.Remove(run.ID)
		return keptRun{}
	}
	return kept
}

// seq returns up to which position the log of the run is probably known; 0 if it is not.
func (k keptRuns) seq(id entities.RunID) int64 {
	kept, _ := k.Peek(id)
	return kept.seq
}

// take takes out the state of a flow's run, while it is used, or returns nil.
func (k keptRuns) take(id entities.RunID) *keptState {
	if kept, _ := k.Peek(id); kept.state == nil {
		return nil
	}
	kept, _ := k.Take(id)
	return kept.state
}

// put keeps the state of a flow's run, unless it is too large.
func (k keptRuns) put(id entities.RunID, s *keptState) { k.Put(id, keptRun{seq: s.Seq(), state: s}) }
