package e2e

import (
	"testing"
	"time"
)

// appDown kills the app during a step. While it is down, a sleep ends and a hook is resumed. All runs continue after
// its restart.
func appDown(t *testing.T, s *server, other *app) {
	a := s.app(t, other.sdkLine, "down")
	token := a.named("down")
	holder := a.run(t, "hookHold", token)
	a.hook(t, holder)
	sleeper := a.run(t, "sleepLong", 6000)
	s.waitFor(t, sleeper, "wait_created")
	worker := a.run(t, "slowStep", 3000)
	s.waitFor(t, worker, "step_started") // the 5.x line may execute the step even before this event
	eventually(t, "the step is running", func() bool { return a.counts(t, worker)["takesTime"] == 1 })
	a.Kill()
	other.resume(t, token, "while you were out")
	pause(t, 10*time.Second)
	for _, id := range []string{sleeper, worker, holder} {
		if run := s.run(t, id); run.Status != "running" {
			t.Errorf("run %s is %s without its app", id, run.Status)
		}
	}

	a.start(t)
	a.want(t, sleeper, "awake")
	s.wantLog(t, sleeper, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	a.want(t, holder, map[string]any{"payload": "while you were out"})
	s.wantLog(t, holder, "run_created", "run_started", "hook_created", "hook_received", "run_completed")
	a.want(t, worker, 3000)
	s.wantLog(t, worker, "run_created", "run_started",
		"step_created takesTime", "step_started takesTime", "step_started takesTime", "step_completed takesTime",
		"run_completed")
	a.wantCounts(t, worker, map[string]int{"takesTime": 2, "takesTime:end": 1})
}

// waitFor waits until the log of a run has an event of the type.
func (s *server) waitFor(t *testing.T, runID, typ string) {
	t.Helper()
	eventually(t, "run "+runID+" has a "+typ, func() bool { return len(log(s.events(t, runID)).of(typ)) > 0 })
}

// wantEverything checks that a run of workflow "everything" completed without any extra events.
func (a *app) wantEverything(t *testing.T, s *server, runID string, payload any) {
	t.Helper()
	a.want(t, runID, map[string]any{"parts": []int{1, 2, 3}, "attempts": 3, "payload": payload, "slow": 500})
	s.wantThreads(t, runID,
		"3 × add: created started completed",
		"hook: created received",
		"retriesTwice: created started retrying started retrying started completed",
		"run: created started completed",
		"takesTime: created started completed",
		"wait: created completed")
	a.wantCounts(t, runID, map[string]int{"add": 3, "retriesTwice": 3, "takesTime": 1, "takesTime:end": 1})
}
