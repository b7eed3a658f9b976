package entities

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels that callers compare with errors.Is. Package handlers maps each to an HTTP status in one
// table; the concrete error's text says which thing and what to do.
var (
	// ErrInvalid: the request can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
	// ErrConflict: someone else was first, or the entity is already past this.
	ErrConflict = errors.New("conflict")
	// ErrRunEnded: the run is over, so this can no longer happen to it.
	ErrRunEnded = errors.New("run has ended")
	// ErrKeyTaken: another live run of the workflow has the key; a [KeyTakenError] says which.
	ErrKeyTaken = errors.New("key taken")
	// ErrKeyReused: the idempotency key came with another request before.
	ErrKeyReused = errors.New("idempotency key reused")
	// ErrStale: the invocation is over, so it can change nothing any more.
	ErrStale = errors.New("stale invocation")
	// ErrNotYet: too early; a [NotYetError] says when.
	ErrNotYet = errors.New("not yet")

	// ErrRunNotFound and its siblings: no such thing in this project.
	ErrRunNotFound        = errors.New("run not found")
	ErrStepNotFound       = errors.New("step not found")
	ErrHookNotFound       = errors.New("hook not found")
	ErrWaitNotFound       = errors.New("wait not found")
	ErrEventNotFound      = errors.New("event not found")
	ErrDeploymentNotFound = errors.New("deployment not found")
	ErrLeaseNotFound      = errors.New("lease not found")
	ErrMessageNotFound    = errors.New("message not found")
	ErrStreamNotFound     = errors.New("stream not found")
)

// InvalidError is an [ErrInvalid] with the reason a caller should be told.
type InvalidError struct {
	// Reason is a sentence that says what is wrong with the request.
	Reason string
}

func (e *InvalidError) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Invalid makes an [InvalidError] from a format.
func Invalid(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// NotYetError is an [ErrNotYet] that says when to come back.
type NotYetError struct {
	// StepID is the step that is not due.
	StepID StepID
	// RetryAfter is how long until it is; always positive.
	RetryAfter time.Duration
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("step %s may not start before another %s", e.StepID, e.RetryAfter)
}

// Is makes errors.Is(err, ErrNotYet) true.
func (e *NotYetError) Is(target error) bool { return target == ErrNotYet }

// KeyTakenError is an [ErrKeyTaken] that says who has the key.
type KeyTakenError struct {
	Key   string
	RunID RunID
}

func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("run %s is alive and has the key %q: wait for its end, cancel it, or join it", e.RunID, e.Key)
}

// Is makes errors.Is(err, ErrKeyTaken) true.
func (e *KeyTakenError) Is(target error) bool { return target == ErrKeyTaken }

// Details are what the error says, for programs to read.
func (e *KeyTakenError) Details() map[string]any {
	return map[string]any{"key": e.Key, "runId": e.RunID}
}

// TransitionError says that an event is not legal for an entity in its present status. By its refusal
// it is an [ErrConflict], an [ErrRunEnded] or the not-found error of its kind.
type TransitionError struct {
	// Kind is "run", "step", "hook" or "wait".
	Kind string
	// ID is the entity's ID.
	ID string
	// Status is the entity's present status; "none" when it does not exist.
	Status string
	// Event is what was refused.
	Event EventType
	// Refusal is the transition table's reason.
	Refusal Refusal
}

func (e *TransitionError) Error() string {
	switch e.Refusal {
	case Missing:
		return fmt.Sprintf("%s %s not found", e.Kind, e.ID)
	case Ended:
		return fmt.Sprintf("%s on %s %s: the run has ended", e.Event, e.Kind, e.ID)
	case Conflict:
		if e.Status == string(StepNone) {
			return fmt.Sprintf("%s on %s %s: it does not exist, or may not any more", e.Event, e.Kind, e.ID)
		}
		fallthrough
	default:
		return fmt.Sprintf("%s on %s %s: it is already %s", e.Event, e.Kind, e.ID, e.Status)
	}
}

// Is makes errors.Is work with the sentinel the refusal stands for.
func (e *TransitionError) Is(target error) bool {
	switch e.Refusal {
	case Conflict:
		return target == ErrConflict
	case Ended:
		return target == ErrRunEnded
	case Missing:
		return target == notFound[e.Kind]
	default:
		return false
	}
}

// Details are what the error says, for programs to read.
func (e *TransitionError) Details() map[string]any {
	return map[string]any{"kind": e.Kind, "id": e.ID, "status": e.Status, "event": e.Event}
}

var notFound = map[string]error{
	KindRun: ErrRunNotFound, KindStep: ErrStepNotFound, KindHook: ErrHookNotFound, KindWait: ErrWaitNotFound,
}
