package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	type reason struct{ Text string }
	declined, other := NewErrorKind[reason]("declined"), NewErrorKind[reason]("other")
	err := declined.New(reason{"empty"})
	// logged returns the error as it comes back from the log, as that of a step or a child.
	logged := func(err error) error {
		f := decodeFailure(encodeFailure(encodeError(err)))
		return &StepError{Step: "charge", Code: f.Code, Message: f.Message, Details: f.Details}
	}
	for name, err := range map[string]error{
		"new":                err,
		"wrapped":            fmt.Errorf("the bank: %w", err),
		"behind another one": errors.Join(other.New(reason{"first"}), err),
		"of a step":          logged(err),
		"of a step, wrapped": logged(fmt.Errorf("the bank: %w", err)),
		"of a step twice":    logged(fmt.Errorf("again: %w", logged(err))),
		"of a run": func() error {
			f := encodeError(logged(err))
			return &RunFailedError{"wrun_1", RunFailure{f.Code, f.Message, f.Details}}
		}(),
	} {
		got, ok := declined.Find(err)
		if !ok || got.Text != "empty" || !errors.Is(err, declined) || !HasCode(err, "declined") {
			t.Errorf("%s: found %v, %v in %v", name, got, ok, err)
		}
		if _, ok := other.Find(err); ok != (name == "behind another one") {
			t.Errorf("%s: found another kind", name)
		}
	}
	if _, ok := declined.Find(nil); ok || errors.Is(errors.New("declined"), declined) {
		t.Error("an error without a code is of the kind")
	}
	wrong := &failure{Message: "m", Code: "declined", Details: json.RawMessage(`"text"`)}
	if _, ok := declined.Find(wrong); ok {
		t.Error("found details of another type")
	}
}

func TestHasCodeKnowsErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("send: %w", &APIError{Code: "run_ended"})
	if !HasCode(err, "run_ended") || HasCode(err, "hook_not_found") {
		t.Errorf("the code of %v is not found", err)
	}
}

func TestAUsersTimeoutIsNotOurs(t *testing.T) {
	t.Parallel()
	kind := NewErrorKind[None]("timeout")
	users, servers := &StepError{Code: "timeout"}, &StepError{Code: "timeout", server: true}
	if errors.Is(users, ErrTimeout) || !errors.Is(users, kind) {
		t.Error("a step's own code timeout was mistaken for the server's")
	}
	if !errors.Is(servers, ErrTimeout) || errors.Is(servers, kind) {
		t.Error("the server's timeout was mistaken for the step's")
	}
	if err := (&StepError{Code: "cancelled", server: true}); !errors.Is(err, ErrCancelled) {
		t.Error("a step that was cancelled has another error")
	}
}

// TestPanicsNameTheLine of the user's code, also if the runtime panics there.
func TestPanicsNameTheLine(t *testing.T) {
	t.Parallel()
	for want, fn := range map[string]func(){
		"panic: ouch (errors_test.go:": func() { panic("ouch") },
		"panic: assignment to entry in nil map (errors_test.go:": func() {
			var m map[string]int
			m["x"] = 1 //nolint:staticcheck // it is to panic
		},
	} {
		err := func() (err error) {
			defer func() { err = newPanicError(recover()) }()
			fn()
			return nil
		}()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
