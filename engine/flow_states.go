package engine

import (
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/flow"
)

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

const (
	// maxFlowStates and maxFlowBytes limit the states that an engine keeps.
	maxFlowStates = 4096
	maxFlowBytes  = 64 << 20
	// stateBytes is what a small state takes, about, and eventBytes an event besides its payload.
	stateBytes = 8 << 10
	eventBytes = 128
)

// flowStates keeps the states of the runs that were answered last. A state is taken out while it is used. Losing one
// costs a call with the whole log.
type flowStates struct {
	*cache.Cache[entities.RunID, *keptState]
}

func newFlowStates() flowStates {
	size := func(_ entities.RunID, s *keptState) int { return s.memory() }
	return flowStates{cache.New(maxFlowStates, maxFlowBytes, size)}
}

// memory returns how many bytes of memory the state takes, about.
func (k *keptState) memory() int {
	n := int(k.Bytes()) + stateBytes
	for _, e := range k.after {
		n += len(e.Payload) + eventBytes
	}
	return n
}

// seq returns the position of the state of a run, or 0.
func (f flowStates) seq(id entities.RunID) (seq int64) {
	f.With(id, func(s *keptState) { seq = s.Seq() })
	return seq
}

// find returns the position of the state of a run, or 0. It drops a state that exceeds the run's log: a failover may
// have lost events that the state knows.
func (f flowStates) find(run entities.Run) int64 {
	seq := f.seq(run.ID)
	if seq > run.LastSeq {
		f.Remove(run.ID)
		return 0
	}
	return seq
}

// take takes out the state of a run, or returns nil.
func (f flowStates) take(id entities.RunID) *keptState {
	s, _ := f.Take(id)
	return s
}

// put keeps a state, unless it is too large.
func (f flowStates) put(id entities.RunID, s *keptState) { f.Put(id, s) }

// carriedOut notes that what the invocation on a lease has decided was carried out.
func (f flowStates) carriedOut(id entities.RunID, lease string) {
	f.With(id, func(s *keptState) {
		if s.lease == lease {
			s.undecided, s.needsInvocation, s.lease = false, false, ""
		}
	})
}
