package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

func TestStepDecisionsFollowTheContract(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	policy := entities.StepSpec{MaxAttempts: 3, BackoffMS: 1000, Factor: 10, MaxBackoffMS: 60_000}
	due := policy
	due.Deadline = at(5 * time.Second)
	late := policy
	late.Deadline = at(0)
	tests := map[string]struct {
		spec     entities.StepSpec
		answer   answer
		err      error
		attempts int

		event   entities.EventType
		payload string
		code    string
		// after is the longest pause. The shortest is three quarters of it, or the same if exact is set.
		after time.Duration
		exact bool
	}{
		"output":                     {answer: answer{status: 200, body: []byte(`{"a":1}`)}, event: "step_completed", payload: `{"a":1}`},
		"no output":                  {answer: answer{status: 204}, event: "step_completed", payload: `null`},
		"output of the last attempt": {answer: answer{status: 200, body: []byte(`1`)}, attempts: 3, event: "step_completed", payload: `1`},
		"late output":                {spec: late, answer: answer{status: 200, body: []byte(`1`)}, event: "step_completed", payload: `1`},
		"deep output": {
			answer: answer{status: 200, body: []byte(deep)}, event: "step_failed", code: "nested_too_deeply",
			payload: `{"message":"the output: it is nested deeper than 1000 levels","code":"nested_too_deeply"}`,
		},
		"deep details": {
			answer: answer{status: 400, body: []byte(`{"error":{"message":"m","details":` + deep + `}}`)},
			event:  "step_failed", payload: `{"message":"m"}`,
		},
		"not JSON": {
			answer: answer{status: 200, body: []byte(`<p>`)}, event: "step_retrying", after: time.Second,
			payload: `{"message":"the answer is not JSON: \"\u003cp\u003e\"","code":"no_answer"}`, code: "no_answer",
		},
		"not UTF-8": {
			answer: answer{status: 200, body: []byte("\"\xff\"")}, event: "step_retrying", after: time.Second,
			payload: `{"message":"the answer is not JSON: \"\\\"\\xff\\\"\"","code":"no_answer"}`, code: "no_answer",
		},
		"no answer": {
			err: errors.New("cut off"), event: "step_retrying", payload: `{"message":"cut off","code":"no_answer"}`, code: "no_answer", after: time.Second,
		},
		"too large": {
			err: &tooLargeError{16 << 20}, event: "step_failed", code: "answer_too_large",
			payload: `{"message":"the answer is larger than 16 MiB: answer with less, such as where the rest is","code":"answer_too_large"}`,
		},
		"second failure": {
			err: errors.New("cut off"), attempts: 2, event: "step_retrying", payload: `{"message":"cut off","code":"no_answer"}`, code: "no_answer",
			after: 10 * time.Second,
		},
		"last failure":   {err: errors.New("cut off"), attempts: 3, event: "step_failed", payload: `{"message":"cut off","code":"no_answer"}`, code: "no_answer"},
		"longest pause":  {spec: entities.StepSpec{MaxAttempts: 9, BackoffMS: 1000, Factor: 10, MaxBackoffMS: 60_000}, err: errors.New("x"), attempts: 8, event: "step_retrying", payload: `{"message":"x","code":"no_answer"}`, code: "no_answer", after: time.Minute},
		"500":            {answer: answer{status: 500, body: []byte(`oops`)}, event: "step_retrying", payload: `{"message":"500 Internal Server Error: \"oops\""}`, after: time.Second},
		"302":            {answer: answer{status: 302}, event: "step_retrying", payload: `{"message":"302 Found: \"\""}`, after: time.Second},
		"400":            {answer: answer{status: 400}, event: "step_failed", payload: `{"message":"400 Bad Request: \"\""}`},
		"408":            {answer: answer{status: 408}, event: "step_retrying", payload: `{"message":"408 Request Timeout: \"\""}`, after: time.Second},
		"425":            {answer: answer{status: 425}, event: "step_retrying", payload: `{"message":"425 Too Early: \"\""}`, after: time.Second},
		"429 with pause": {answer: answer{status: 429, retryAfter: 30 * time.Second}, event: "step_retrying", payload: `{"message":"429 Too Many Requests: \"\""}`, after: 30 * time.Second, exact: true},
		"not ready": {
			answer: answer{status: 202, retryAfter: time.Minute, asksLater: true}, event: "step_retrying", code: "not_ready",
			payload: message.NotReady, after: time.Minute, exact: true,
		},
		"not ready, without a pause": {
			answer: answer{status: 202, asksLater: true}, event: "step_retrying", code: "not_ready",
			payload: message.NotReady, after: time.Second, exact: true,
		},
		"202 with an output": {answer: answer{status: 202, body: []byte(`1`)}, event: "step_completed", payload: `1`},
		"pause to the deadline": {
			spec: due, answer: answer{status: 429, retryAfter: 30 * time.Second}, event: "step_retrying",
			payload: `{"message":"429 Too Many Requests: \"\""}`, after: 5 * time.Second, exact: true,
		},
		"error in the body": {
			answer: answer{status: 500, body: []byte(`{"error":{"message":"no money","code":"POOR","details":{"n":1}}}`)},
			event:  "step_retrying", code: "POOR", payload: `{"message":"no money","code":"POOR","details":{"n":1}}`, after: time.Second,
		},
		"final error in the body": {
			answer: answer{status: 500, body: []byte(`{"error":{"message":"no money","code":"POOR","retryable":false}}`)},
			event:  "step_failed", code: "POOR", payload: `{"message":"no money","code":"POOR"}`,
		},
		"retryable error in the body": {
			answer: answer{status: 400, body: []byte(`{"error":{"message":"wait","retryable":true}}`)},
			event:  "step_retrying", payload: `{"message":"wait"}`, after: time.Second,
		},
		"failure at the deadline": {
			spec: late, answer: answer{status: 500}, event: "step_failed", code: "timeout",
			payload: `{"message":"there was no result before 2026-11-21T10:00:00Z","code":"timeout"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stepWork{spec: policy}
			if tt.spec.MaxAttempts > 0 {
				s.spec = tt.spec
			}
			got := s.decide(tt.answer, tt.err, max(1, tt.attempts), now)
			if got.event != tt.event || string(got.payload) != tt.payload || got.code != tt.code {
				t.Errorf("got %s %s with code %q, want %s %s with code %q",
					got.event, got.payload, got.code, tt.event, tt.payload, tt.code)
			}
			least := tt.after - tt.after/4
			if tt.exact {
				least = tt.after
			}
			if got.after > tt.after || got.after < least {
				t.Errorf("retries after %s, want %s to %s", got.after, least, tt.after)
			}
		})
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "soon": 0, "1.5": 0,
		"99999999999999999999": 0, "9999999999": maxRetryAfter,
		"Sat, 21 Nov 2026 10:01:00 GMT": time.Minute, "Sat, 21 Nov 2026 09:00:00 GMT": 0,
		"Sat, 21 Nov 2037 10:01:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("Retry-After: %q: got %s, want %s", header, got, want)
		}
	}
}
