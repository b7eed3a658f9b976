package contract

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// TestFirstAttemptsFollowThePolicy: the pause is at least that of the policy and the one that the function asks for, but
// ends with the step's timeout. There is none if the policy allows one attempt.
func TestFirstAttemptsFollowThePolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields     string
		least, max time.Duration // 0 and 0 for a failed step
	}{
		"default":     {``, 750 * time.Millisecond, time.Second},
		"policy":      {`,"retry":{"backoff":"8s"}`, 6 * time.Second, 8 * time.Second},
		"max backoff": {`,"retry":{"backoff":"8s","maxBackoff":"4s"}`, 3 * time.Second, 4 * time.Second},
		"asked for":   {`,"retry":{"backoff":"8s"}` + retryIn("1m"), time.Minute, time.Minute},
		"less":        {`,"retry":{"backoff":"8s"}` + retryIn("1s"), 6 * time.Second, 8 * time.Second},
		"too long":    {retryIn("48h"), 24 * time.Hour, 24 * time.Hour},
		"timeout":     {`,"timeout":"5s"` + retryIn("1m"), 5 * time.Second, 5 * time.Second},
		"one attempt": {`,"retry":{"maxAttempts":1}` + retryIn("1m"), 0, 0},
	} {
		if tt.fields == "" || tt.fields[len(tt.fields)-1] != ' ' {
			tt.fields += `,"firstAttempt":{"error":{"message":"m","code":"c"},"startedAt":"2026-11-21T09:59:00Z"}`
		}
		requests, err := read(`{"type":"runStep","id":"a"` + tt.fields + `}`)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		first := requests[0].First
		began := orders.Now.Add(-time.Minute)
		pause := time.Duration(0)
		want := eventlog.FirstAttempt{
			Payload: []byte(`{"message":"m","code":"c"}`), Data: entities.EventData{ErrorCode: "c", StartedAt: &began},
		}
		if at := first.Data.RetryAfter; at != nil {
			pause, want.Data.RetryAfter = at.Sub(orders.Now), at
		}
		if pause < tt.least || pause > tt.max {
			t.Errorf("%s: got a pause of %s, want %s to %s", name, pause, tt.least, tt.max)
		}
		if diff := cmp.Diff(&want, first); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// retryIn returns the field of a first attempt that asks for a pause. The space at its end marks it.
func retryIn(pause string) string {
	return `,"firstAttempt":{"error":{"message":"m","code":"c"},"startedAt":"2026-11-21T09:59:00Z","retryAfter":"` + pause + `"} `
}

// TestRepeatedStepsHaveWork: the work has the run invoked after the pause, which is a day at most.
func TestRepeatedStepsHaveWork(t *testing.T) {
	t.Parallel()
	for asked, pause := range map[string]time.Duration{"0s": 0, "30s": 30 * time.Second, "48h": 24 * time.Hour} {
		requests, err := read(`{"type":"recordStep","id":"a","name":"pay","error":{"message":"m"},"retryAfter":"` + asked + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		want := []message.Message{{RunID: "wrun_1", Topic: "pay", Work: message.WorkStep, Subject: "a", Delay: pause}}
		if diff := cmp.Diff(want, requests[1].Messages); diff != "" || len(requests[0].Messages) > 0 {
			t.Errorf("after %s (-want +got):\n%s", asked, diff)
		}
	}
}
