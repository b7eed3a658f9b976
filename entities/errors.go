package entities

import (
	"errors"
	"fmt"
	"time"
)

// Sentinel errors, to be compared with errors.Is. Package handlers maps each to an HTTP status in one table. The text
// of the concrete error names the entity and tells the caller what to do.
var (
	// ErrInvalid means that the request can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
	// ErrConflict means that another request was first, or that the entity is already past this status.
	ErrConflict = errors.New("conflict")
	// ErrRunEnded means that the event is not possible because the run has ended.
	ErrRunEnded = errors.New("run has ended")
	// ErrKeyTaken means that another live run of the workflow has the unique key; a [KeyTakenError] names the run.
	ErrKeyTaken = errors.New("key taken")
	// ErrKeyReused means that the idempotency key was used before, with a different request.
	ErrKeyReused = errors.New("idempotency key reused")
	// ErrHookClaimed means that the hook's token was taken over by the hook of another run, which a [HookClaimedError]
	// names.
	ErrHookClaimed = errors.New("hook claimed")
	// ErrSuperseded means that the writer does not know of all writes of the run's orchestrators; a [SupersededError] has
	// the counts.
	ErrSuperseded = errors.New("superseded")
	// ErrNotYet means that the request is too early; a [NotYetError] contains the time.
	ErrNotYet = errors.New("not yet")

	// ErrRunNotFound and the following ones mean that the project has no such thing.
	ErrRunNotFound    = errors.New("run not found")
	ErrStepNotFound   = errors.New("step not found")
	ErrHookNotFound   = errors.New("hook not found")
	ErrWaitNotFound   = errors.New("wait not found")
	ErrEventNotFound  = errors.New("event not found")
	ErrStreamNotFound = errors.New("stream not found")

	// ErrStreamClosed means that a stream takes no more chunks, and ErrStreamLimit that it would have too many.
	ErrStreamClosed = errors.New("stream is closed")
	ErrStreamLimit  = errors.New("stream limit")
)

// invalidError is an [ErrInvalid] with the reason.
type invalidError string

func (e invalidError) Error() string { return string(e) }

// Is makes errors.Is(err, ErrInvalid) true.
func (e invalidError) Is(target error) bool { return target == ErrInvalid }

// Invalid returns an [ErrInvalid] whose text, made from the format, tells the caller what is wrong with the request.
func Invalid(format string, args ...any) error {
	return invalidError(fmt.Sprintf(format, args...))
}

// FieldError is an [ErrInvalid] about a field of something that a client puts, by its name in the API.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// Details returns the machine-readable part of the error.
func (e *FieldError) Details() map[string]any { return map[string]any{"field": e.Field} }

// NotYetError is an [ErrNotYet] with the time to retry.
type NotYetError struct {
	// StepID is the step that is not due.
	StepID StepID
	// RetryAfter is the time until the step is due; always positive.
	RetryAfter time.Duration
}

func (e *NotYetError) Error() string {
	return fmt.Sprintf("step %s may not start for another %s", e.StepID, e.RetryAfter)
}

// Is makes errors.Is(err, ErrNotYet) true.
func (e *NotYetError) Is(target error) bool { return target == ErrNotYet }

// HookClaimedError is an [ErrHookClaimed] with the hook that has the token.
type HookClaimedError struct {
	Hook HookID
	By   HookRef
}

func (e *HookClaimedError) Error() string {
	return fmt.Sprintf("hook %s has lost its token to hook %s of run %s: look the token up again, and send to that hook",
		e.Hook, e.By.HookID, e.By.RunID)
}

// Is makes it an [ErrHookClaimed], and an [ErrConflict]: it comes too late.
func (e *HookClaimedError) Is(target error) bool {
	return target == ErrHookClaimed || target == ErrConflict
}

// Details has what clients read.
func (e *HookClaimedError) Details() map[string]any { return map[string]any{"claimedBy": e.By} }

// SupersededError is an [ErrSuperseded] with the counters of the run.
type SupersededError struct {
	RunID RunID
	// Seq is the length of the run's log, and SeqInBand how many positions of it orchestrators have taken.
	Seq, SeqInBand int64
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("another orchestrator writes to run %s, whose log has %d events, %d of them in-band: stop, and "+
		"have the message delivered again", e.RunID, e.Seq, e.SeqInBand)
}

// Details returns the machine-readable part of the error.
func (e *SupersededError) Details() map[string]any {
	return map[string]any{"seq": e.Seq, "seqInBand": e.SeqInBand}
}

// Is makes errors.Is(err, ErrSuperseded) true.
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded }

// KeyTakenError is an [ErrKeyTaken] with the run that has the key.
type KeyTakenError struct {
	Key   string
	RunID RunID
}

func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("live run %s has the key %q: wait for its end, cancel it, or join it", e.RunID, e.Key)
}

// Is makes errors.Is(err, ErrKeyTaken) true.
func (e *KeyTakenError) Is(target error) bool { return target == ErrKeyTaken }

// Code names the error for programs.
func (e *KeyTakenError) Code() string { return "key_taken" }

// Details returns the machine-readable part of the error.
func (e *KeyTakenError) Details() map[string]any {
	return map[string]any{"key": e.Key, "runId": e.RunID}
}

// TransitionError means that an event is illegal in the entity's current status. Depending on the refusal, it is an
// [ErrConflict], an [ErrRunEnded] or the not-found error of its kind.
type TransitionError struct {
	// Kind is one of the Kind constants.
	Kind string
	// ID is the entity's ID.
	ID string
	// Status is the entity's current status; "none" if it does not exist.
	Status string
	// Event is the refused event.
	Event EventType
	// Refusal is the reason in the transition table.
	Refusal refusal
}

func (e *TransitionError) Error() string {
	switch e.Refusal {
	case missing:
		return fmt.Sprintf("%s %s not found", e.Kind, e.ID)
	case Ended:
		return fmt.Sprintf("%s on %s %s: the run has ended", e.Event, e.Kind, e.ID)
	case Conflict:
		if e.Status == string(StepNone) {
			return fmt.Sprintf("%s on %s %s: it does not exist, or can no longer be created", e.Event, e.Kind, e.ID)
		}
		fallthrough
	default:
		return fmt.Sprintf("%s on %s %s: it is already %s", e.Event, e.Kind, e.ID, e.Status)
	}
}

// Is makes errors.Is true for the sentinel that the refusal stands for.
func (e *TransitionError) Is(target error) bool {
	switch e.Refusal {
	case Conflict:
		return target == ErrConflict
	case Ended:
		return target == ErrRunEnded
	case missing:
		return target == notFound[e.Kind]
	default:
		return false
	}
}

// Details returns the machine-readable part of the error.
func (e *TransitionError) Details() map[string]any {
	return map[string]any{"kind": e.Kind, "id": e.ID, "status": e.Status, "event": e.Event}
}

var notFound = map[string]error{
	KindRun: ErrRunNotFound, KindStep: ErrStepNotFound, KindHook: ErrHookNotFound, KindWait: ErrWaitNotFound,
}
