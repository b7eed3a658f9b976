package wire

import (
	"fmt"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// fence is whether the events of a request can carry the fence of their run (§12).
type fence int

const (
	noFence    fence = iota // the server serves no runs with a fence
	otherRoute              // the request came by a route of earlier versions, for whose runs it may be
	ownRoute                // it can
)

// fence returns whether the events of the request can carry a fence.
func (s *Server) fence(r *request) fence {
	switch {
	case !s.Fence:
		return noFence
	case strings.Contains(r.Path(), "/v5/"):
		return ownRoute
	default:
		return otherRoute
	}
}

// fenceOfCommits returns whether the events of commits can carry a fence.
func (s *Server) fenceOfCommits() fence {
	if s.Fence {
		return ownRoute
	}
	return noFence
}

// addTo adds to a request what the metadata says about the fence. It fails with [entities.ErrSpecVersion] unless the
// server knows the version of the event.
func (f fence) addTo(r *eventlog.Request, m meta) error {
	if r.Unfenced = f != ownRoute; !r.Unfenced && m.InBand {
		r.InBand = true
		if m.SeqInBand != nil {
			r.SeqInBand = new(int64(*m.SeqInBand))
		}
	}
	if r.SpecVersion == entities.SpecFence && f != noFence {
		return nil
	}
	return entities.CheckSpecVersion(r.SpecVersion)
}

// withFence returns the handler of a route of version 5, which serves the runs of all versions.
func withFence(handle func(*Server, *request) error) func(*Server, *request) error {
	return func(s *Server, r *request) error {
		if !s.Fence {
			return fmt.Errorf("%w %d: this server does not serve it: set STEPWELL_SDK_SPEC_9=true on the server, or install "+
				"workflow 5.2 in the app (npm install workflow@~5.2)", entities.ErrSpecVersion, entities.SpecFence)
		}
		return handle(s, r)
	}
}

// snapshotOf returns the counters of a run for the end of a list, if the run has a fence.
func snapshotOf(run entities.Run) *codec.Snapshot {
	if !run.Fenced() {
		return nil
	}
	return &codec.Snapshot{Seq: codec.Int(run.LastSeq), SeqInBand: codec.Int(run.SeqInBand)}
}

// snapshot reads the counters of a run that has a fence, before a list of its events is read: then the list has all
// events that they count.
func (s *Server) snapshot(r *request, id entities.RunID) (*codec.Snapshot, error) {
	if s.fence(r) != ownRoute {
		return nil, nil
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), id)
	if err != nil {
		return nil, err
	}
	return snapshotOf(run), nil
}

// report is what the answer to a write to a run with a fence says besides: how many positions of the log it took, and
// the events that its writer did not know.
type report struct {
	Allocated  *codec.Int `cbor:"allocated,omitzero"`
	Incomplete bool       `cbor:"reportIncomplete,omitzero"`
}

// allocated returns how many positions the write of an event took, as its writer counts: the run_created that a
// run_started brings is in the count that it expects. It is nil for a run without a fence.
func allocated(appended eventlog.Result) *codec.Int {
	switch {
	case !appended.Run.Fenced():
		return nil
	case appended.Repeated:
		return new(codec.Int(0))
	case appended.StepCreated:
		return new(codec.Int(2))
	default:
		return new(codec.Int(1))
	}
}

// reportsSkipped reports whether the answer to the event must report the events that its writer did not know.
func (m meta) reportsSkipped(appended eventlog.Result) bool {
	return m.InBand && m.MaxSlot > 0 && appended.Run.Fenced()
}

// skippedBefore returns the page of events between the last one that the writer knew and its own first one; it reports
// false if an answer cannot have them.
func (m meta) skippedBefore(own int64) (page pg.Page, ok bool) {
	seen := int64(m.MaxSlot)
	return pg.Page{Cursor: read.EventCursorAt(seen), Limit: int(own - seen - 1)}, own-seen <= eventPage
}
