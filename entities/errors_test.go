package entities

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sentinels are the errors that callers may compare with.
var sentinels = []error{
	ErrInvalid, ErrConflict, ErrRunEnded, ErrNotYet, ErrRunNotFound, ErrStepNotFound, ErrHookNotFound,
	ErrWaitNotFound, ErrEventNotFound,
}

func TestErrorIsExactlyOneSentinel(t *testing.T) {
	t.Parallel()
	refused := func(kind string, r refusal) error {
		return &TransitionError{Kind: kind, ID: "the_id", Status: "some", Event: EventStepStarted, Refusal: r}
	}
	tests := map[string]struct {
		err  error
		want error // nil for none of them
	}{
		"conflict":      {refused(KindStep, Conflict), ErrConflict},
		"ended":         {refused(KindStep, Ended), ErrRunEnded},
		"missing run":   {refused(KindRun, missing), ErrRunNotFound},
		"missing step":  {refused(KindStep, missing), ErrStepNotFound},
		"missing hook":  {refused(KindHook, missing), ErrHookNotFound},
		"missing wait":  {refused(KindWait, missing), ErrWaitNotFound},
		"repeat":        {refused(KindRun, Repeat), nil},
		"not yet":       {&NotYetError{StepID: "step_1", RetryAfter: time.Second}, ErrNotYet},
		"invalid":       {Invalid("%d is odd", 3), ErrInvalid},
		"unknown kinds": {refused("ghost", missing), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrapped := fmt.Errorf("append: %w", test.err)
			for _, sentinel := range sentinels {
				if got, want := errors.Is(wrapped, sentinel), sentinel == test.want; got != want { //nolint:errorlint // identity
					t.Errorf("errors.Is(err, %q) = %t, want %t", sentinel, got, want)
				}
			}
		})
	}
}

func TestErrorTextsNameEntityEventAndStatus(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want []string
	}{
		"conflict": {
			&TransitionError{Kind: KindStep, ID: "step_1", Status: "failed", Event: EventStepCompleted, Refusal: Conflict},
			[]string{"step_1", "step_completed", "failed"},
		},
		"ended": {
			&TransitionError{Kind: KindRun, ID: "wrun_1", Status: "failed", Event: EventRunStarted, Refusal: Ended},
			[]string{"wrun_1", "run_started", "ended"},
		},
		"missing": {
			&TransitionError{Kind: KindHook, ID: "hook_1", Event: EventHookReceived, Refusal: missing},
			[]string{"hook hook_1", "not found"},
		},
		"not yet": {&NotYetError{StepID: "step_1", RetryAfter: 1500 * time.Millisecond}, []string{"step_1", "1.5s"}},
		"invalid": {Invalid("%d is odd", 3), []string{"3 is odd"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, want := range test.want {
				if got := test.err.Error(); !strings.Contains(got, want) {
					t.Errorf("got %q, want it to contain %q", got, want)
				}
			}
		})
	}
}
