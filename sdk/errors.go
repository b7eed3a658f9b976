package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// The codes of errors that the SDK and the server make.
const (
	codeTimeout     = "timeout"
	codeUndecodable = "undecodable"
	codeUnencodable = "unencodable"
	codeTooLarge    = "answer_too_large"
)

// failure is an error as the function contract describes it. It is how errors of steps and runs are kept in the log.
type failure struct {
	Message string          `json:"message"`
	Code    string          `json:"code,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Error implements error.
func (f *failure) Error() string { return withCode(f.Code, f.Message) }

// withCode returns a message that begins with the code, if there is one.
func withCode(code, message string) string {
	if code == "" || code == message || strings.HasPrefix(message, code+": ") {
		return message
	}
	return code + ": " + message
}

// Is reports whether the target is an [ErrorKind] with the failure's code.
func (f *failure) Is(target error) bool {
	k, ok := target.(interface{ kind() string })
	return ok && k.kind() == f.Code
}

// As finds the failure if the target wants its code.
func (f *failure) As(target any) bool {
	w, ok := target.(**wanted)
	if ok = ok && (*w).code == f.Code; ok {
		(*w).found = f
	}
	return ok
}

// wanted is a target for errors.As: a failure with a code.
type wanted struct {
	code  string
	found *failure
}

// Error implements error.
func (w *wanted) Error() string { return w.code }

// decodeFailure decodes an error of the log. What is not in the form of the contract is a message.
func decodeFailure(data json.RawMessage) failure {
	f, err := decode[failure](data)
	if err != nil {
		f = failure{Message: string(data)}
	}
	return f
}

// encodeFailure encodes an error for the log. Details that are no JSON are left out.
func encodeFailure(f failure) json.RawMessage {
	data, err := json.Marshal(f)
	if err != nil {
		data, _ = json.Marshal(failure{Message: f.Message, Code: f.Code}) // texts always encode
	}
	return data
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
	return "step " + e.ID + ": " + withCode(e.Code, e.Message)
}

// Is reports whether the server failed the step for lack of time, if the target is [ErrTimeout], or because it was
// cancelled, if the target is [ErrCancelled].
func (e *StepError) Is(target error) bool {
	return e.server && (e.Code == codeTimeout && errors.Is(target, ErrTimeout) ||
		e.Code != codeTimeout && errors.Is(target, ErrCancelled))
}

// Unwrap returns the error that the step returned, so that an [ErrorKind] finds its details; nil if the server made it.
func (e *StepError) Unwrap() error {
	if e.server {
		return nil
	}
	return &failure{Message: e.Message, Code: e.Code, Details: e.Details}
}

// ErrTimeout is the error of what did not happen in time.
var ErrTimeout = errors.New("the time is over")

// wrapped is an error that says no more than the one inside, but has another type.
type wrapped struct{ error }

// Unwrap returns the error itself.
func (w wrapped) Unwrap() error { return w.error }

// Fail returns a permanent error with a code and a message. A step that returns it is not retried, and a workflow that
// returns it fails.
func Fail(code, message string) error {
	return &permanentError{wrapped{&failure{Message: message, Code: code}}}
}

// Permanent returns an error that is not retried; nil for nil. If it has no code, that of the step is permanent. A step
// that returns it says that it has done nothing: it is not undone.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{wrapped{err}}
}

type permanentError struct{ wrapped }

// RetryAfter returns an error after which the step is not retried before d is over; nil for nil. The server respects up
// to a day.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{wrapped{err}, d}
}

type retryError struct {
	wrapped

	after time.Duration
}

// Block returns an error that neither fails nor completes a workflow: nothing is recorded, and the server calls the
// workflow again later, or when a new version is deployed. It is nil for nil.
func Block(err error) error {
	if err == nil {
		return nil
	}
	return &blockedError{wrapped{err}}
}

type blockedError struct{ wrapped }

// HasCode reports whether an error has a code, whether it was made here, or came from a step, a run or the API.
func HasCode(err error, code string) bool {
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == code {
		return true
	}
	if w := (&wanted{code: code}); errors.As(err, &w) {
		return true
	}
	if r, ok := errors.AsType[*RunFailedError](err); ok && r.Code == code {
		return true
	}
	s, ok := errors.AsType[*StepError](err)
	return ok && s.Code == code
}

// ErrorKind is a kind of errors that carry details of one type through the log: from a step to its workflow, from a
// child to its parent, and from a run to those who wait for it. It is itself an error, so that errors.Is(err, kind)
// reports whether err is of the kind.
type ErrorKind[T any] struct{ code string }

// NewErrorKind returns the kind of errors with this code. An error that the server makes, such as that of a step whose
// time is over, is never of a kind.
func NewErrorKind[T any](code string) *ErrorKind[T] { return &ErrorKind[T]{code} }

// Error implements error.
func (k *ErrorKind[T]) Error() string { return k.code }

func (k *ErrorKind[T]) kind() string { return k.code }

// New returns an error of the kind. It is permanent.
func (k *ErrorKind[T]) New(details T) error {
	data, err := encode(details)
	if err != nil {
		return Permanent(fmt.Errorf("encode the details of error %s: %w", k.code, err))
	}
	return &permanentError{wrapped{&failure{Message: k.code, Code: k.code, Details: data}}}
}

// Find returns the details of the error of this kind in err's tree, if there is one.
func (k *ErrorKind[T]) Find(err error) (details T, ok bool) {
	w := &wanted{code: k.code}
	if !errors.As(err, &w) {
		return details, false
	}
	if details, err = decode[T](w.found.Details); err != nil {
		return *new(T), false
	}
	return details, true
}

// encodeError returns an error as the log keeps it: its whole text, with the code and the details of the failure in it.
func encodeError(err error) failure {
	if f, ok := err.(*failure); ok { //nolint:errorlint // only the outermost one
		return *f
	}
	coded := failure{Message: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		coded.Code, coded.Details = f.Code, f.Details
	} else if s, ok := errors.AsType[*StepError](err); ok {
		coded.Code, coded.Details = s.Code, s.Details
	} else if errors.Is(err, ErrCancelled) {
		coded.Code = codeCancelled
	} else if errors.Is(err, ErrTimeout) {
		coded.Code = codeTimeout
	}
	return coded
}

// undecodableError is what a workflow panics with whose log has a result that its code cannot read. The run is blocked:
// another build can.
type undecodableError struct{ text string }

// Error implements error.
func (e *undecodableError) Error() string { return e.text }

// newUndecodable returns the error of a result that does not decode into T.
func newUndecodable[T any](op *engine.Operation, err error) error {
	where, what := "it", err.Error()
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field != "" {
			where = "field " + e.Field
		}
		what = fmt.Sprintf("%s is a JSON %s there, and of type %s in the code", where, e.Value, e.Type)
	}
	return &undecodableError{fmt.Sprintf("the log has a result of %s %s, asked for at %s, that is no %s: %s;"+
		" give what has changed another name, and keep the old one, or deploy the old build for this run",
		op.Kind, op.ID, op.Place, reflect.TypeFor[T](), what)}
}

// codePermanent is the code of permanent errors of steps that have none. So the log says that they are permanent.
const codePermanent = "permanent"

// encodeStepError returns the error of a step as the log keeps it.
func encodeStepError(err error) failure {
	f := encodeError(err)
	if f.Code == "" && isPermanent(err) {
		f.Code = codePermanent
	}
	return f
}

// longestStack limits the part of a stack that is kept in the log, in bytes.
const longestStack = 8 << 10

// newPanicError returns the error of a step that panicked. It is retried. The misuse of a workflow's handle is none of
// the step's errors: it blocks the run.
func newPanicError(value any) error {
	if m, ok := value.(*engine.MisuseError); ok {
		return m
	}
	return panicFailure(value, debug.Stack())
}

func panicFailure(value any, stack []byte) *failure {
	message := fmt.Sprintf("panic: %v%s", value, panicPlace(string(stack)))
	return &failure{Message: message, Code: codePanic, Details: stackDetails(stack)}
}

func stackDetails(stack []byte) json.RawMessage {
	details, _ := json.Marshal(map[string]string{"stack": string(stack[:min(len(stack), longestStack)])}) // a text
	return details
}

// panicPlace returns the line of code that panicked, in brackets; empty if the stack does not show it.
func panicPlace(stack string) string {
	_, callers, _ := strings.Cut(stack, "\npanic(")
	for {
		_, rest, _ := strings.Cut(callers, "\n") // each caller has two lines: the function and the place
		_, rest, ok := strings.Cut(rest, "\n")
		if !ok {
			return ""
		}
		function, place, _ := strings.Cut(rest, "\n")
		if !strings.HasPrefix(function, "runtime.") {
			place, _, _ = strings.Cut(strings.TrimSpace(place), " ")
			return " (" + path.Base(filepath.ToSlash(place)) + ")"
		}
		callers = rest
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}
