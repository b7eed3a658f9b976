package contract

import (
	"cmp"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// The error codes of failures that the server itself reports, and of steps that their run's function cancelled.
const (
	// CodeTimeout means that a step or run had no result before its deadline.
	CodeTimeout = "timeout"
	// CodeCancelled means that the run's function cancelled the step.
	CodeCancelled = "cancelled"
	// CodeNoAnswer means that a step's function was called and did not answer, so that nobody knows what it did.
	CodeNoAnswer = "no_answer"
	// CodeLimitFull means that a limit, which refuses, had no slot for the first attempt at a step.
	CodeLimitFull = "limit_full"
)

// cancelStep cancels a step that has no result: it fails, and its call is closed. A child run is asked to cancel, and
// its step ends with it.
type cancelStep struct {
	head

	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Grace is how long a child run may take to end by itself; nil ends it at once.
	Grace *duration `json:"grace"`
}

func (c *cancelStep) requests(Planner) ([]eventlog.Request, error) {
	if c.Reason != "" {
		if err := entities.ValidateName("reason", c.Reason); err != nil {
			return nil, err
		}
	}
	reason := cmp.Or(c.Reason, "cancelled by the workflow")
	return []eventlog.Request{{
		Type: entities.EventStepFailed, CorrelationID: c.ID, Payload: Payload(reason, CodeCancelled),
		Data:  entities.EventData{ErrorCode: CodeCancelled, Reason: reason, Cancelled: true},
		Grace: or(c.Grace, 0),
	}}, nil
}

// cancelled ends a run that was asked to cancel.
type cancelled struct{ head }

func (*cancelled) requests(Planner) ([]eventlog.Request, error) {
	return []eventlog.Request{EndAsAsked()}, nil
}

// EndAsAsked returns the request that ends a run that was asked to cancel: as cancelled or, if its timeout asked, as
// failed with [CodeTimeout].
func EndAsAsked() eventlog.Request {
	return eventlog.Request{Type: entities.EventRunCancelled, AsAsked: true, Payload: lateRun}
}

// Late returns the request that fails a run whose deadline has passed or, if its timeout has a grace, asks it to
// cancel.
func Late(grace time.Duration) eventlog.Request {
	r := eventlog.Request{Type: entities.EventRunFailed, Payload: lateRun}
	r.Data.ErrorCode = CodeTimeout
	if grace > 0 {
		r.Type, r.Grace, r.Data.Reason = entities.EventCancelRequested, grace, CodeTimeout
	}
	return r
}

// lateRun is the error of a run whose timeout is over.
var lateRun = Payload("the run did not end in time", CodeTimeout)
