package e2e

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// appDown: the app crashes amid a step, and while it is down a sleep ends and a hook is resumed.
func appDown(t *testing.T, s *server, other *app) {
	a := s.app(t, other.line, "down")
	token := a.named("down")
	holder := a.run(t, "hookHold", token)
	a.hook(t, holder)
	sleeper := a.run(t, "sleepLong", 6000)
	s.waitFor(t, sleeper, "wait_created")
	worker := a.run(t, "slowStep", 3000)
	eventually(t, "the step is at work", func() bool { return a.counts(t, worker)["takesTime"] == 1 })
	a.kill()
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

// TestServerRestarts stops the only server in good order, kills it, and stops it again, each time amid
// runs that are at something else, of all lines. Nobody but who asks just then notices.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	var underWay atomic.Int64
	type pair struct {
		*app
		id, token string
	}
	var runs []pair
	var sleepers []pair
	for _, l := range lines {
		a := newApp(t, appOptions{line: l, stepwell: s.url(), deployment: l.named("restarts")})
		between := newProxy(t, a.url(), func(forward http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				underWay.Add(1)
				defer underWay.Add(-1)
				forward.ServeHTTP(w, r)
			}
		})
		s.register(t, l.named("restarts"), between.URL)
		for _, name := range []string{"restart 1", "restart 2"} {
			token := l.named(name)
			runs = append(runs, pair{a, a.run(t, "everything", token), token})
		}
	}
	s.waitFor(t, runs[0].id, "step_retrying")
	s.restart(t)

	for _, r := range runs {
		r.hook(t, r.id)
	}
	for i := 0; i < len(runs); i += 2 {
		sleepers = append(sleepers, pair{runs[i].app, runs[i].run(t, "sleepLong", 8000), ""})
	}
	for _, r := range sleepers {
		s.waitFor(t, r.id, "wait_created")
	}
	// A delivery that is under way at a crash waits for its lease to end, which takes longer than this test.
	quiet := 0
	eventually(t, "no delivery is under way", func() bool {
		if quiet++; underWay.Load() > 0 {
			quiet = 0
		}
		return quiet > 20
	})
	logs := func() (logs [][]string) {
		for _, r := range runs {
			logs = append(logs, log(s.events(t, r.id)).lines())
		}
		return logs
	}
	before := logs()
	s.kill()
	s.start(t)
	if after := logs(); !slices.EqualFunc(before, after, slices.Equal) {
		t.Errorf("logs before the crash:\n%q\nand after:\n%q", before, after)
	}

	for i, r := range runs {
		r.resume(t, r.token, i)
	}
	s.waitFor(t, runs[len(runs)-1].id, "hook_received")
	s.restart(t)
	for _, r := range sleepers {
		r.want(t, r.id, "awake")
		s.wantLog(t, r.id, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	}
	for i, r := range runs {
		r.wantEverything(t, s, r.id, i)
	}
}

// restart stops the server in good order and starts it again.
func (s *server) restart(t *testing.T) {
	t.Helper()
	s.stop(t)
	s.start(t)
}

// wantEverything expects that a run of the workflow "everything" went as if nothing had happened.
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
