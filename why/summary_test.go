package why

import (
	"testing"

	"github.com/stepwell-dev/stepwell/queue/hold"
)

// TestSummaries: each kind of reason has one, without what only [Of] reads.
func TestSummaries(t *testing.T) {
	t.Parallel()
	r := Reason{
		StepID: "s1", Name: "charge", HookID: "ok", DeploymentID: "shop", Limit: "stripe", Attempt: 3, MaxAttempts: 5,
		Failures: 12, Pause: &hold.Pause{Subject: hold.Subject{Kind: hold.Run, Name: "wrun_1"}, PausedBy: "anna"},
	}
	want := map[Kind]string{
		Stranded: "nothing would move it", ProjectPaused: "project charge is paused", Paused: "run is paused by anna",
		Parked:            "the call of step charge (s1) is parked: it failed 12 times",
		DeploymentMissing: "deployment shop is not registered", Diverged: "the code changed under the run",
		FunctionRefuses: "the function refuses to go on", AnswerRefused: "the server refuses the function's answer",
		LimitDeadlock: "deadlock at limit stripe", LimitPaused: "limit stripe is paused",
		Unhealthy: "deployment shop is unhealthy", Unreachable: "deployment shop is unreachable: tried 12 times",
		ConnectionClosed: "the call of step charge (s1) was cut off 12 times",
		FunctionFails:    "the call of step charge (s1) failed 12 times",
		TaskFails:        "a task of the server failed 12 times", StepBackoff: "step charge: attempt 3 of 5 comes",
		Cancelling: "it was asked to cancel", Called: "its function is being called",
		StepRunning: "step charge is running: attempt 3 of 5", StepQueued: "step charge waits for a free slot",
		Queued: "its call waits for a free slot", Client: "the app has not taken its message",
		Unscheduled: "something has just happened", StartDelay: "it starts later",
		LimitFull: "no slot of limit stripe is free", DeploymentFull: "deployment shop has no free call",
		Rate: "the rate of limit stripe is used up", Child: "waits for child charge", Hook: "waits for hook ok",
		Webhook: "waits for webhook ok", Signal: "waits for signal charge", Approval: "waits for approval ok",
		Wait: "sleeps", Inbox: "waits for a message to inbox charge",
	}
	for _, r.Kind = range Kinds() {
		if got := r.Summary(); got != want[r.Kind] {
			t.Errorf("%s: got %q, want %q", r.Kind, got, want[r.Kind])
		}
	}
	for r, want := range map[*Reason]string{
		{Kind: Hook, HookID: sdkHook, Name: "approval:1"}:                                        "waits for hook approval:1",
		{Kind: Hook, HookID: sdkHook}:                                                            "waits for hook " + sdkHook,
		{Kind: StepQueued, StepID: "step_01JD5A8R8D0000000000000000", Name: "step//./a//charge"}: "step charge waits for a free slot",
	} {
		if got := r.Summary(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
