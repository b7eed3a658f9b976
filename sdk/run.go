package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Run is the handle of a run with output O, for code outside workflows.
type Run[O any] struct {
	c  *Client
	id string
}

// ID returns the run's ID.
func (r *Run[O]) ID() string { return r.id }

// RunDetails describes a run.
type RunDetails struct {
	ID, Workflow, Deployment string
	Status                   RunStatus
	Attributes               map[string]string
	// Key and ParentID are empty if the run has none.
	Key, ParentID string
	// ContinuedFrom is the run with whose work this one goes on, and ContinuedAs the one that goes on with its work; empty
	// for none.
	ContinuedFrom, ContinuedAs string
	// ForkOf says where a fork began; nil for other runs.
	ForkOf *ForkOf
	// StartAt is the planned start of a pending run. StartedAt, CompletedAt and Deadline are zero if there is no such
	// time.
	CreatedAt, StartAt, StartedAt, CompletedAt, Deadline time.Time
	// LastSeq is the number of events in the log.
	LastSeq int64
	// Error is that of a failed run. In lists it has only the code.
	Error *RunFailure
	// CancelReason is why the run was cancelled.
	CancelReason string
	// Blocked says why the run's function does not get on; nil if it does.
	Blocked *RunBlocked
	// Input and Output are JSON; nil in lists, and for keys whose role has no access to payloads.
	Input, Output json.RawMessage
	// OutputEncoding is json, none or opaque; empty without access to payloads.
	OutputEncoding string
}

// RunFailure is why a run failed.
type RunFailure struct {
	// Code and Message are those of the workflow's error. The code timeout means that the run's time was over.
	Code, Message string
	// Details is the JSON of the error's details; nil if it has none.
	Details json.RawMessage
}

// RunBlocked says since when, and why, invocations of a run fail.
type RunBlocked struct {
	Code, Message string
	Since         time.Time
	Attempts      int
}

// RunFailedError is the error of a run that failed. [ErrorKind.Find] and errors.Is find the workflow's kind of errors
// in it.
type RunFailedError struct {
	RunID string
	RunFailure
}

// Error implements error.
func (e *RunFailedError) Error() string {
	return fmt.Sprintf("run %s failed: %s", e.RunID, withCode(e.Code, e.Message))
}

// Is reports whether the run's time was over, if the target is [ErrTimeout].
func (e *RunFailedError) Is(target error) bool {
	return e.Code == codeTimeout && errors.Is(target, ErrTimeout)
}

// Unwrap returns the error as the workflow's code made it; nil if the server made it.
func (e *RunFailedError) Unwrap() error {
	if e.Code == codeTimeout {
		return nil
	}
	return &failure{e.Message, e.Code, e.Details}
}

// RunCancelledError is the error of a run that was cancelled.
type RunCancelledError struct{ RunID, Reason string }

// Is reports whether the target is [ErrCancelled].
func (e *RunCancelledError) Is(target error) bool { return errors.Is(target, ErrCancelled) }

// Error implements error.
func (e *RunCancelledError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("run %s was cancelled", e.RunID)
	}
	return fmt.Sprintf("run %s was cancelled: %s", e.RunID, e.Reason)
}

// Details describes the run, with its input and output. One that waits for further starts has the status
// [StatusCollecting], and no other fields but ID, Workflow, Deployment, Attributes and Key.
func (r *Run[O]) Details(ctx context.Context) (RunDetails, error) {
	var info RunDetails
	err := r.c.get(ctx, r.path(), nil, &info)
	return info, err
}

func (r *Run[O]) path(more ...string) string {
	return apiPath(append([]string{"runs", r.id}, more...)...)
}

// poll is how long the server waits for the end of a run before it answers.
const poll = 30 * time.Second

// Wait waits for the end of the run and returns its output. If the run continues as others, it waits for the last of
// these. If the run fails, the error is a [*RunFailedError]; if it
// is cancelled, a [*RunCancelledError]. Wait outlives restarts of the server: it ends with the run, with the context,
// or with a request that is refused for good.
func (r *Run[O]) Wait(ctx context.Context) (output O, err error) {
	w := &awaited[O]{RunEnd: RunEnd[O]{Run: r}, path: r.path("wait")}
	for !w.once(ctx, poll) {
	}
	return w.Output, w.err
}

// ended returns the output or the error of a run that has ended, or false.
func (r *Run[O]) ended(info RunDetails) (output O, ended bool, err error) {
	switch info.Status {
	case StatusCompleted:
		output, err = outputOf[O](info)
		return output, true, err
	case StatusFailed:
		failed := &RunFailedError{RunID: info.ID}
		if info.Error != nil {
			failed.RunFailure = *info.Error
		}
		return output, true, failed
	case StatusCancelled:
		return output, true, &RunCancelledError{info.ID, info.CancelReason}
	default:
		return output, false, nil
	}
}

// outputOf decodes the output of a completed run.
func outputOf[O any](info RunDetails) (output O, err error) {
	switch info.OutputEncoding {
	case "json", "none":
		if output, err = decode[O](info.Output); err != nil {
			return output, fmt.Errorf("decode the output of run %s: %w", info.ID, err)
		}
		return output, nil
	case "":
		return output, fmt.Errorf("run %s has completed, but the key's role may not read its output: use a key with "+
			"the role read or write", info.ID)
	default:
		return output, fmt.Errorf("run %s has completed, but its output is no JSON: it is %s", info.ID, info.OutputEncoding)
	}
}

// Cancel cancels the run. With a grace, it asks: the workflow learns of it and can compensate, and is stopped when the
// grace is over. Without, it stops the run at once. A run that is cancelled already stays as it is; for one that has
// ended otherwise, the error has the code run_ended.
func (r *Run[O]) Cancel(ctx context.Context, reason string, grace time.Duration) error {
	body := struct {
		Reason string `json:"reason,omitempty"`
		Grace  string `json:"grace,omitempty"`
	}{reason, unlessZero(grace)}
	return r.c.post(ctx, r.path("cancel"), body)
}

// Event is an event of a run's log, as docs/api.md describes it.
type Event struct {
	RunID string `json:"runId"`
	// Seq is the event's position in the log, from 1.
	Seq  int64  `json:"seq"`
	Type string `json:"type"`
	// CorrelationID is the ID of the step, wait or hook that the event concerns.
	CorrelationID string    `json:"correlationId,omitempty"`
	CreatedAt     time.Time `json:"createdAt"`
	// Data is what the server interprets, and Payload what it only keeps. Both are JSON; Payload is nil if there is
	// none, and if it is larger than 1 MiB, which Truncated says.
	Data      json.RawMessage `json:"data"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

// Events yields the events that the run's log has, in order. An error is the last element.
func (r *Run[O]) Events(ctx context.Context) iter.Seq2[Event, error] {
	return pages[Event](ctx, r.c.get, r.path("events"), url.Values{})
}

// Log returns the run with its whole log and all payloads, for [App.Replay].
func (r *Run[O]) Log(ctx context.Context) (l RunLog, err error) {
	if err := r.c.get(ctx, r.path(), nil, &l.Run); err != nil {
		return l, err
	}
	for e, err := range pages[Event](ctx, r.c.get, r.path("events"), url.Values{"payloads": {"true"}}) {
		if err == nil && e.Truncated {
			e.Truncated = false
			err = r.c.get(ctx, r.path("events", strconv.FormatInt(e.Seq, 10), "payload"), nil, &e.Payload)
		}
		if err != nil {
			return l, err
		}
		l.Events = append(l.Events, e)
	}
	return l, nil
}
