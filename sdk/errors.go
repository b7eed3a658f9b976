package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// failure is an error as the function contract describes it. It is how errors of steps and runs are kept in the log.
type failure struct {
	Message string          `json:"message"`
	Code    string          `json:"code,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Error implements error.
func (f *failure) Error() string {
	if f.Code == "" {
		return f.Message
	}
	return f.Code + ": " + f.Message
}

// StepError is the error of a step that failed for good.
type StepError struct {
	// Step is the name of the step, and ID its ID in the run.
	Step, ID string
	// Code is the code of the error; empty if it has none.
	Code string
	// Message is the text of the error.
	Message string
	// Details is the JSON of the error's details; nil if it has none.
	Details json.RawMessage

	server bool // the server made the error
}

// Error implements error.
func (e *StepError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("step %s: %s", e.ID, e.Message)
	}
	return fmt.Sprintf("step %s: %s: %s", e.ID, e.Code, e.Message)
}

// Is reports whether the server failed the step for lack of time, if the target is [ErrTimeout].
func (e *StepError) Is(target error) bool {
	return errors.Is(target, ErrTimeout) && e.server && e.Code == "timeout"
}

var (
	// ErrTimeout is the error of what did not happen in time.
	ErrTimeout = errors.New("the time is over")
)

// Fail returns a permanent error with a code and a message. A step that returns it is not retried, and a workflow that
// returns it fails.
func Fail(code, message string) error {
	return &permanentError{err: &failure{Message: message, Code: code}}
}

// Permanent returns an error that is not retried.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

type permanentError struct{ err error }

// Error implements error.
func (e *permanentError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter returns an error after which the step is not retried before d is over. The server respects up to a day.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, d}
}

type retryError struct {
	err   error
	after time.Duration
}

// Error implements error.
func (e *retryError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *retryError) Unwrap() error { return e.err }

// Hold returns an error that neither fails nor completes a workflow: nothing is recorded, and the server calls the
// workflow again later, or when a new version is deployed.
func Hold(err error) error {
	if err == nil {
		return nil
	}
	return &heldError{err}
}

type heldError struct{ err error }

// Error implements error.
func (e *heldError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *heldError) Unwrap() error { return e.err }

// HasCode reports whether an error has a code, whether it was made here or came from a step or a run.
func HasCode(err error, code string) bool {
	if f := (*failure)(nil); errors.As(err, &f) && f.Code == code {
		return true
	}
	if s := (*StepError)(nil); errors.As(err, &s) && s.Code == code {
		return true
	}
	return false
}

// ErrorKind is a kind of errors that carry details of one type through the log. It is itself an error, so that
// errors.Is(err, kind) reports whether err is of the kind.
type ErrorKind[T any] struct{ code string }

// NewErrorKind returns the kind of errors with this code. The codes of the server begin with a lower-case word without
// a dot, such as timeout; a kind is never mistaken for them.
func NewErrorKind[T any](code string) *ErrorKind[T] { return &ErrorKind[T]{code} }

// Error implements error.
func (k *ErrorKind[T]) Error() string { return k.code }

// New returns an error of the kind. It is permanent.
func (k *ErrorKind[T]) New(details T) error {
	data, err := json.Marshal(details)
	if err != nil {
		return Permanent(fmt.Errorf("encode the details of error %s: %w", k.code, err))
	}
	return &permanentError{err: &kindError{failure{Message: k.code, Code: k.code, Details: data}, k}}
}

// kindError is an error of a kind that was made in this process.
type kindError struct {
	failure

	kind error
}

// Is reports whether the target is the error's kind.
func (e *kindError) Is(target error) bool { return target == e.kind } //nolint:errorlint // kinds are compared

// As gives the error as the log keeps it.
func (e *kindError) As(target any) bool {
	f, ok := target.(**failure)
	if ok {
		*f = &e.failure
	}
	return ok
}

// Find returns the details of the error of this kind in err's tree, if there is one.
func (k *ErrorKind[T]) Find(err error) (details T, ok bool) {
	var data json.RawMessage
	if f := (*failure)(nil); errors.As(err, &f) && f.Code == k.code {
		data, ok = f.Details, true
	} else if s := (*StepError)(nil); errors.As(err, &s) && s.Code == k.code && !s.server {
		data, ok = s.Details, true
	}
	if !ok || json.Unmarshal(data, &details) != nil {
		return *new(T), false
	}
	return details, true
}

// encodeError returns an error as the log keeps it.
func encodeError(err error) failure {
	if f := (*failure)(nil); errors.As(err, &f) {
		g := *f
		if _, bare := err.(*failure); !bare { //nolint:errorlint // only the outermost one
			g.Message = err.Error()
		}
		return g
	}
	if s := (*StepError)(nil); errors.As(err, &s) {
		return failure{Message: err.Error(), Code: s.Code, Details: s.Details}
	}
	return failure{Message: err.Error()}
}
