package codec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

var (
	// ErrMalformed is matched by every error about bytes that break the format: answer 400.
	ErrMalformed = errors.New("malformed")

	// ErrTooLarge is matched by every error about bytes that exceed a limit the caller set: answer 413.
	ErrTooLarge = errors.New("too large")
)

// Error reports that the sender of some bytes broke the format or a limit. Failures to read or write the bytes,
// such as a lost connection, are never an Error.
type Error struct {
	// Kind is ErrMalformed or ErrTooLarge.
	Kind error

	// Reason says in a few words what is wrong, for the sender to read.
	Reason string

	// Cause is what lies below, or nil.
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

// mismatch translates the CBOR library's complaint that well-formed bytes do not fit the Go value.
func mismatch(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	reason := err.Error()
	var typ *cbor.UnmarshalTypeError
	if errors.As(err, &typ) {
		// The library names Go types; the sender knows only its own field names.
		field := typ.StructFieldName[strings.LastIndexByte(typ.StructFieldName, '.')+1:]
		reason = strings.TrimSpace("unexpected " + typ.CBORType + " " + field)
	}
	return &Error{Kind: ErrMalformed, Reason: reason, Cause: err}
}
