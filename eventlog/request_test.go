package eventlog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// minimalRequest returns a request with only the required fields, for each type that a client may write.
func minimalRequest(event entities.EventType) Request {
	switch {
	case event == entities.EventRunCreated:
		return runCreated(theRun)
	case event.Kind() == entities.KindRun && event != entities.EventAttrSet && event != entities.EventStoreSet:
		return onRun(theRun, event)
	default:
		return on(theRun, event, "some_1")
	}
}

var allEvents = []entities.EventType{
	"run_created", "run_started", "run_completed", "run_failed", "run_cancelled", "attr_set",
	"step_created", "step_started", "step_completed", "step_failed", "step_retrying",
	"hook_created", "hook_received", "hook_disposed", "wait_created", "wait_completed", "wait_cancelled", "cancel_requested",
	"store_set",
}

func TestMinimalRequestsAreValid(t *testing.T) {
	t.Parallel()
	for _, event := range allEvents {
		r := minimalRequest(event)
		if err := r.validate(day); err != nil {
			t.Errorf("%s: got error %v, want none", event, err)
		}
	}
}

func TestServerOnlyEventTypesAreInvalid(t *testing.T) {
	t.Parallel()
	for _, event := range []entities.EventType{"hook_conflict", "step_exploded", "", "RUN_CREATED"} {
		r := on(theRun, event, "some_1")
		if err := r.validate(day); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%q: got error %v, want ErrInvalid", event, err)
		}
	}
}

func TestMalformedRequestsAreInvalid(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		event  entities.EventType
		change func(*Request)
	}{
		"3.3 empty run ID":                {"run_started", func(r *Request) { r.RunID = "" }},
		"3.3 path-like run ID":            {"run_started", func(r *Request) { r.RunID = "../etc" }},
		"3.3 run_created, old run ID":     {"run_created", func(r *Request) { r.RunID = "wrun_01ARZ3NDEKTSV4RRFFQ69G5FAV" }},
		"3.3 run_created, invalid run ID": {"run_created", func(r *Request) { r.RunID = "wrun_hc_1" }},
		"run_created, no deployment":      {"run_created", func(r *Request) { r.Data.DeploymentID = "" }},
		"run_created, no workflow":        {"run_created", func(r *Request) { r.Data.WorkflowName = "" }},
		"run_created, invalid deployment": {"run_created", func(r *Request) { r.Data.DeploymentID = "a\x00" }},
		"run_created, path as deployment": {"run_created", func(r *Request) { r.Data.DeploymentID = "apps/shop" }},
		"run_created, long deployment": {
			"run_created", func(r *Request) { r.Data.DeploymentID = strings.Repeat("d", 257) },
		},
		"run_created, workflow too long for its topic": {
			"run_created", func(r *Request) { r.Data.WorkflowName = strings.Repeat("w", 1010) },
		},
		"3.3 step, empty correlation ID": {"step_created", func(r *Request) { r.CorrelationID = "" }},
		"3.3 hook, empty correlation ID": {"hook_created", func(r *Request) { r.CorrelationID = "" }},
		"3.3 wait, empty correlation ID": {"wait_completed", func(r *Request) { r.CorrelationID = "" }},
		"3.3 path-like correlation ID":   {"step_started", func(r *Request) { r.CorrelationID = "a/b" }},
		"a correlation ID too long":      {"step_started", func(r *Request) { r.CorrelationID = strings.Repeat("a", 257) }},
		"step_created, no name":          {"step_created", func(r *Request) { r.Data.StepName = "" }},
		"hook_created, no token":         {"hook_created", func(r *Request) { r.Data.Token = "" }},
		"hook_created, token too long":   {"hook_created", func(r *Request) { r.Data.Token = strings.Repeat("t", 1025) }},
		"wait_created, no time":          {"wait_created", func(r *Request) { r.Data.ResumeAt = nil }},
		"attr_set, no changes":           {"attr_set", func(r *Request) { r.Data.Changes = nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := minimalRequest(test.event)
			test.change(&r)
			if err := r.validate(day); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
		})
	}
}

// Texts must fit a jsonb column, which takes no NUL, and times must have years of four digits.
func TestUnstorableTextsAndTimesAreInvalid(t *testing.T) {
	t.Parallel()
	far := time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC)
	long := strings.Repeat("x", 1025)
	changes := map[string]func(*Request){
		"NUL in the correlation ID":       func(r *Request) { r.CorrelationID = "a\x00" },
		"long correlation ID":             func(r *Request) { r.CorrelationID = long },
		"NUL in the deployment":           func(r *Request) { r.Data.DeploymentID = "a\x00" },
		"NUL in the workflow's name":      func(r *Request) { r.Data.WorkflowName = "a\x00" },
		"NUL in the step's name":          func(r *Request) { r.Data.StepName = "a\x00" },
		"NUL in the token":                func(r *Request) { r.Data.Token = "a\x00" },
		"NUL in the error code":           func(r *Request) { r.Data.ErrorCode = "a\x00" },
		"NUL in the other run":            func(r *Request) { r.Data.ConflictingRunID = "a\x00" },
		"invalid UTF-8 in the error code": func(r *Request) { r.Data.ErrorCode = "\xff" },
		"long error code":                 func(r *Request) { r.Data.ErrorCode = long },
		"NUL in an attribute's key": func(r *Request) {
			r.Data.Changes = []entities.AttributeChange{{Key: "a\x00"}}
		},
		"NUL in an attribute's value": func(r *Request) {
			r.Data.Changes = []entities.AttributeChange{{Key: "a", Value: ptr("\x00")}}
		},
		"resume in the year 10,000":   func(r *Request) { r.Data.ResumeAt = &far },
		"retry in the year 10,000":    func(r *Request) { r.Data.RetryAfter = &far },
		"occurred in the year 10,000": func(r *Request) { r.OccurredAt = &far },
		"occurred before the year 1":  func(r *Request) { r.OccurredAt = ptr(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)) },
	}
	for name, change := range changes {
		for _, event := range allEvents {
			t.Run(name+", "+string(event), func(t *testing.T) {
				t.Parallel()
				r := minimalRequest(event)
				change(&r)
				if err := r.validate(day); !errors.Is(err, entities.ErrInvalid) {
					t.Errorf("got error %v, want ErrInvalid", err)
				}
			})
		}
	}
}

func TestOptionalTextsMayBeEmpty(t *testing.T) {
	t.Parallel()
	for _, event := range allEvents {
		r := minimalRequest(event)
		r.Data.ErrorCode, r.Data.ResumeAt = "", ptr(day)
		if err := r.validate(day); err != nil {
			t.Errorf("%s: got error %v, want none", event, err)
		}
	}
}
