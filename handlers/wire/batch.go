package wire

import (
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

	*result
}

// item returns the outcome of an event that was rejected for the problem.
func (p Problem) item() item {
	seconds := codec.Int(math.Ceil(p.RetryAfter.Seconds())) // rounded up, so that clients do not retry too early
	return item{Status: codec.Int(p.Status), Error: p.Code, Message: p.Message, RetryAfter: seconds}
}

// postBatch is endpoint 1b: it appends the events of consecutive frames, each independently (§3.13).
func (s *Server) postBatch(r *request) error {
	runID := r.runID()
	if r.err != nil {
		return r.err
	}
	requests, err := readBatch(r.Request().Body, runID)
	if err != nil {
		return err
	}
	outcomes, err := s.Log.AppendBatch(r.ctx(), r.project(), runID, requests)
	if err != nil {
		return err
	}
	items := make([]item, len(outcomes))
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
	return r.send(struct {
		Results []item `cbor:"results"`
	}{items})
}

func readBatch(body io.Reader, runID entities.RunID) ([]eventlog.Request, error) {
	var requests []eventlog.Request
	for frame, err := range codec.Frames(body) {
		if err != nil {
			return nil, err
		}
		if len(requests) == eventlog.MaxBatch {
			return nil, entities.Invalid("the batch has more than %d events", eventlog.MaxBatch)
		}
		request, _, err := newRequest(runID, frame)
		if err != nil {
			return nil, err
		}
		requests = append(requests, request)
	}
	return requests, nil
}
