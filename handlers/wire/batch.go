package wire

import (
	"cmp"
	"io"
	"math"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// item is the outcome of one event of a batch or a commit: the same answer as for a single event, or why it was
// rejected. In a commit it may also be the outcome of a message.
type item struct {
	Status     codec.Int `cbor:"status"`
	Error      string    `cbor:"error,omitzero"`
	Message    string    `cbor:"message,omitzero"`
	RetryAfter codec.Int `cbor:"retryAfter,omitzero"`
	MessageID  string    `cbor:"messageId,omitzero"`
	ClaimedBy  *hookRef  `cbor:"claimedBy,omitzero"`

	*result
	*codec.Snapshot // of the run, if the writer was superseded
}

// item returns the outcome of an event that was rejected for the problem.
func (p Problem) item() item {
	seconds := codec.Int(math.Ceil(p.RetryAfter.Seconds())) // rounded up, so that clients do not retry too early
	i := item{Status: codec.Int(p.Status), Error: p.Code, Message: p.Message, RetryAfter: seconds}
	if c := p.Counters; c != nil {
		i.Snapshot = &codec.Snapshot{Seq: codec.Int(c.Seq), SeqInBand: codec.Int(c.SeqInBand)}
	}
	if p.ClaimedBy != nil {
		i.ClaimedBy = new(newHookRef(*p.ClaimedBy))
	}
	return i
}

// postBatch is endpoint 1b: it appends the events of consecutive frames, each independently (§3.13).
func (s *Server) postBatch(r *request) error {
	runID := r.runID()
	if r.err != nil {
		return r.err
	}
	requests, m, err := readBatch(r.Request().Body, runID, s.fence(r))
	if err != nil {
		return err
	}
	outcomes, err := s.Log.AppendBatch(r.ctx(), r.project(), runID, requests)
	if err != nil {
		return err
	}
	answer := batchAnswer{Results: make([]item, len(outcomes))}
	items := answer.Results
	for i, o := range outcomes {
		if o.Err != nil {
			p := s.Problem(o.Err)
			if p.Status >= http.StatusInternalServerError {
				return o.Err // fail the whole batch, so that it is logged; a retry finds the events already written
			}
			items[i] = p.item()
			continue
		}
		res, err := s.newResult(r, requests[i].Type, o.Result, read.WithoutPayloads)
		if err != nil {
			return err
		}
		items[i] = item{Status: http.StatusOK, result: &res}
	}
	if answer.excerpt, answer.report, err = s.reportOf(r, outcomes, m); err != nil {
		return err
	}
	return r.send(answer)
}

// batchAnswer is the answer to a batch. The parts besides the results are for a run with a fence.
type batchAnswer struct {
	Results []item `cbor:"results"`

	*excerpt
	report
}

// reportOf returns what the answer to a batch says about the log: the positions that it took, and for an orchestrator
// the events between the last one that it knew and the first of its own.
func (s *Server) reportOf(r *request, outcomes []eventlog.Outcome, m meta) (x *excerpt, all report, err error) {
	var first *eventlog.Result
	for i := range outcomes {
		o := &outcomes[i].Result
		n := allocated(*o) // none if it was refused: then the outcome has no run
		if n == nil {
			continue
		}
		if first == nil && *n > 0 {
			first = o
		}
		all.Allocated = new(*n + *cmp.Or(all.Allocated, new(codec.Int)))
	}
	if all.Allocated == nil && s.fence(r) == ownRoute && m.InBand {
		all.Allocated = new(codec.Int)
	}
	if first == nil || !m.reportsSkipped(*first) {
		return nil, all, nil
	}
	var res result
	err = s.addExcerpt(r, &res, *first, m)
	all.Incomplete = res.Incomplete
	return res.excerpt, all, err
}

// readBatch returns the requests of a batch, and the metadata of the first.
func readBatch(body io.Reader, runID entities.RunID, by fence) (requests []eventlog.Request, first meta, err error) {
	for frame, err := range codec.Frames(body) {
		if err != nil {
			return nil, first, err
		}
		if len(requests) == eventlog.MaxBatch {
			return nil, first, entities.Invalid("the batch has more than %d events", eventlog.MaxBatch)
		}
		request, m, err := newRequest(runID, frame, by)
		if err != nil {
			return nil, first, err
		}
		if len(requests) == 0 {
			first = m
		}
		requests = append(requests, request)
	}
	return requests, first, nil
}
