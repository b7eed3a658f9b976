package wire

import (
	"errors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
)

const (
	maxCancelled    = 500 // runs in one request
	maxCancelReason = 512 // characters
)

// cancellation is the outcome for one run (§3.15).
type cancellation struct {
	RunID     string `cbor:"runId"`
	Outcome   string `cbor:"outcome"`
	Status    string `cbor:"status,omitzero"`    // of a run that has already ended
	Code      string `cbor:"code,omitzero"`      // of a failure
	Retryable bool   `cbor:"retryable,omitzero"` // whether a retry may succeed
}

// cancelSummary counts the outcomes.
type cancelSummary struct {
	Requested      codec.Int `cbor:"requested"`
	Cancelled      codec.Int `cbor:"cancelled"`
	Already        codec.Int `cbor:"alreadyCancelled"`
	NotCancellable codec.Int `cbor:"notCancellable"`
	NotFound       codec.Int `cbor:"notFound"`
	Failed         codec.Int `cbor:"failed"`
}

// cancelRuns is endpoint 23. Each run is cancelled independently: a failure does not affect the others.
func (s *Server) cancelRuns(r *request) error {
	var body struct {
		RunIDs []string `cbor:"runIds"`
		Reason string   `cbor:"cancelReason"`
	}
	r.body(&body)
	r.fail(validateCancel(body.RunIDs, body.Reason))
	if r.err != nil {
		return r.err
	}
	extra, err := cancelExtra(body.Reason)
	if err != nil {
		return err
	}
	results := make([]cancellation, len(body.RunIDs))
	summary := cancelSummary{Requested: codec.Int(len(results))}
	for i, id := range body.RunIDs {
		if err := r.ctx().Err(); err != nil {
			return err // the client has gone
		}
		results[i] = s.cancelRun(r, entities.RunID(id), extra, &summary)
	}
	return r.send(struct {
		Summary cancelSummary  `cbor:"summary"`
		Results []cancellation `cbor:"results"`
	}{summary, results})
}

func validateCancel(runIDs []string, reason string) error {
	if n := len(runIDs); n < 1 || n > maxCancelled {
		return entities.Invalid("runIds has %d IDs; want 1 to %d", n, maxCancelled)
	}
	seen := map[string]bool{}
	for _, id := range runIDs {
		if err := entities.ValidateID("run ID", id); err != nil {
			return err
		}
		if seen[id] {
			return entities.Invalid("runIds contains %s twice", id)
		}
		seen[id] = true
	}
	if n := len([]rune(reason)); n > maxCancelReason {
		return entities.Invalid("cancelReason has %d characters; the limit is %d", n, maxCancelReason)
	}
	return nil
}

// cancelExtra encodes the reason as the extra data of an event.
func cancelExtra(reason string) ([]byte, error) {
	if reason == "" {
		return nil, nil
	}
	return codec.Marshal(map[string]string{"cancelReason": reason})
}

// cancelRun cancels a run, and counts the outcome.
func (s *Server) cancelRun(r *request, id entities.RunID, extra []byte, count *cancelSummary) cancellation {
	outcome := cancellation{RunID: string(id)}
	run, did, err := s.Log.Cancel(r.ctx(), r.project(), eventlog.Request{RunID: id, Extra: extra})
	switch {
	case errors.Is(err, entities.ErrRunNotFound):
		outcome.Outcome = "not_found"
		count.NotFound++
	case err != nil:
		s.Logger.ErrorContext(r.ctx(), "cancel run", "run", id, "error", err)
		outcome.Outcome, outcome.Code, outcome.Retryable = "failed", "internal", true
		count.Failed++
	case did:
		outcome.Outcome = "cancelled"
		count.Cancelled++
	case run.Status == entities.RunCancelled:
		outcome.Outcome = "already_cancelled"
		count.Already++
	default:
		outcome.Outcome, outcome.Status = "not_cancellable", string(run.Status)
		count.NotCancellable++
	}
	return outcome
}
