package eventlog

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// The runs of [entities.SpecFence] and later have a fence. Their orchestrator counts the positions of the log that its
// own writes have taken, and names that count with each of them. If the log has another count, somebody else
// orchestrates the run too, and the write is refused before anything else about it is decided. All other writes are
// out-of-band: they advance the log, but not the count.
//
// The count is the fold of the log, as is the length of it. So the fence needs no lock and no condition of its own: a
// decision applies only if the log is as long as it was, and then its count is what it was, too.

// fenced reports whether the run of the request has a fence: the one that exists, or the one that the request creates.
func (f facts) fenced(r *Request) bool {
	if f.Run == nil {
		return r.SpecVersion >= entities.SpecFence && (r.Type == entities.EventRunCreated || r.createsRun())
	}
	return f.Run.Fenced()
}

// checkFence refuses a write of an orchestrator that does not know of all writes of the run's orchestrators, and one by
// a route that cannot carry the fence.
func (f facts) checkFence(r *Request) error {
	switch {
	case !f.fenced(r):
		return nil
	case r.Unfenced:
		return entities.Invalid("run %s has spec version %d or later: its events are written to /v5/runs, with a version "+
			"of the Workflow SDK that does so", r.RunID, entities.SpecFence)
	case !r.InBand || r.Type == entities.EventRunCreated:
		return nil
	case r.SeqInBand == nil:
		return entities.Invalid("expectedSeqInBand is missing: an in-band write to a run of spec version %d or later must "+
			"say how many in-band positions its writer knows", entities.SpecFence)
	}
	seq, count := int64(1), int64(1) // of the run_created that a run_started brings
	if f.Run != nil {
		seq, count = f.Run.LastSeq, f.Run.SeqInBand
	}
	if *r.SeqInBand != count {
		return &entities.SupersededError{RunID: r.RunID, Seq: seq, SeqInBand: count}
	}
	return nil
}

// decideFenced is [decide] for a request that the fence of the run lets through. It marks the events of orchestrators.
func decideFenced(f facts, r *Request, at time.Time) ([]entities.Event, error) {
	if err := f.checkFence(r); err != nil && !f.admitted {
		return nil, err
	}
	inBand := r.InBand && f.fenced(r)
	events, err := decide(f, r, at)
	for i := range events {
		events[i].Data.InBand = inBand && events[i].Type != entities.EventRunCreated
	}
	return events, err
}

// checkBlock refuses a batch as a whole, for the fence of its run. In-band events have a meaning only in runs that have
// one, so that in others the rules of other batches hold.
func (f facts) checkBlock(requests []Request) error {
	switch {
	case f.Run != nil && f.Run.Fenced():
		return f.checkFence(&requests[0])
	case requests[0].InBand:
		return onePerEntity(requests)
	default:
		return nil
	}
}

// onePerEntity checks that at most one event of a batch is about the same entity, except for the pair that creates a
// step and starts it.
func onePerEntity(requests []Request) error {
	seen := map[entity]bool{}
	for i := range requests {
		r := &requests[i]
		about := r.entity()
		if seen[about] && (i == 0 || !r.startsStepOf(&requests[i-1])) {
			return entities.Invalid("event %d of the batch: another event is for the same %s", i, about.kind)
		}
		seen[about] = true
	}
	return nil
}

// entity identifies what a request is about, among the requests for one run.
type entity struct{ kind, id string }

func (r *Request) entity() entity {
	if kind := r.Type.Kind(); kind != entities.KindRun {
		return entity{kind, r.CorrelationID}
	}
	return entity{kind: entities.KindRun}
}

// sameFence reports whether two requests of a batch are in-band with the same count, or both out-of-band.
func (r *Request) sameFence(other *Request) bool {
	switch {
	case r.InBand != other.InBand || (r.SeqInBand == nil) != (other.SeqInBand == nil):
		return false
	default:
		return r.SeqInBand == nil || *r.SeqInBand == *other.SeqInBand
	}
}
