package wire

import (
	"io"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// item is the outcome of one event of a batch: the same answer as for a single event, or why it was rejected.
type item struct {
	Status  codec.Int `cbor:"status"`
	Error   string    `cbor:"error,omitzero"`
	Message string    `cbor:"message,omitzero"`

	*result
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
			status, code, message := s.Problem(o.Err)
			if status >= http.StatusInternalServerError {
				return o.Err // fail the whole batch, so that it is logged; a retry finds the events already written
			}
			items[i] = item{Status: codec.Int(status), Error: code, Message: message}
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
