package codec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

var (
	// ErrMalformed is matched by every error about invalid data. Its status is 400.
	ErrMalformed = errors.New("malformed")

	// ErrTooLarge is matched by every error about data that exceeds a limit. Its status is 413.
	ErrTooLarge = errors.New("too large")
)

// Error reports that the sender of the data violated the format or a limit. A failure to read or write, such as a
// broken connection, is never an Error.
type Error struct {
	// Kind is ErrMalformed or ErrTooLarge.
	Kind error

	// Reason describes the violation for the sender.
	Reason string

	// Cause is the underlying error, or nil.
	Cause error
}

// Error returns kind and reason.
func (e *Error) Error() string { return e.Kind.Error() + ": " + e.Reason }

// Unwrap lets errors.Is and errors.As find both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// malformed returns an Error of kind ErrMalformed.
func malformed(format string, args ...any) error {
	return &Error{Kind: ErrMalformed, Reason: fmt.Sprintf(format, args...)}
}

// tooLarge returns an Error of kind ErrTooLarge.
func tooLarge(format string, args ...any) error {
	return &Error{Kind: ErrTooLarge, Reason: fmt.Sprintf(format, args...)}
}

// mismatch translates the CBOR library's error that valid CBOR does not fit the Go value.
func mismatch(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	reason := err.Error()
	if typ, ok := errors.AsType[*cbor.UnmarshalTypeError](err); ok {
		// Name the sender's field and not the Go type.
		field := typ.StructFieldName[strings.LastIndexByte(typ.StructFieldName, '.')+1:]
		reason = strings.TrimSpace("unexpected " + typ.CBORType + " " + field)
	}
	return &Error{Kind: ErrMalformed, Reason: reason, Cause: err}
}
