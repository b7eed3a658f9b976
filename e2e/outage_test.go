package e2e

import (
	"net/http"
	"slices"
	"sync/atomic"
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

// restarts is a server that the test restarts, with an app and two runs for each SDK line.
type restarts struct {
	*server
	runs     []restartedRun
	inFlight atomic.Int64 // deliveries
}

type restartedRun struct {
	*app
	id, token string
}

func newRestarts(t *testing.T) *restarts {
	t.Helper()
	r := &restarts{server: newServer(t)}
	for _, l := range sdkLines {
		a := newApp(t, appOptions{line: l, stepwell: r.url(), deployment: l.named("restarts")})
		between := newProxy(t, a.url(), func(forward http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				r.inFlight.Add(1)
				defer r.inFlight.Add(-1)
				forward.ServeHTTP(w, req)
			}
		})
		r.register(t, l.named("restarts"), between.URL)
		for _, name := range []string{"restart 1", "restart 2"} {
			token := l.named(name)
			r.runs = append(r.runs, restartedRun{a, a.run(t, "everything", token), token})
		}
	}
	return r
}

// TestRunsSurviveServerRestarts stops the only server gracefully, kills it, and stops it again, each time while the
// runs are in another state. The runs complete as if nothing had happened.
func TestRunsSurviveServerRestarts(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	r := newRestarts(t)
	r.waitFor(t, r.runs[0].id, "step_retrying")
	r.restart(t)

	var sleepers []restartedRun
	for i, run := range r.runs {
		run.hook(t, run.id)
		if i%2 == 0 {
			sleepers = append(sleepers, restartedRun{app: run.app, id: run.run(t, "sleepLong", 8000)})
			r.waitFor(t, sleepers[len(sleepers)-1].id, "wait_created")
		}
	}
	r.quiet(t)
	before := r.logs(t)
	r.Kill()
	r.start(t)
	if after := r.logs(t); !slices.EqualFunc(before, after, slices.Equal) {
		t.Errorf("logs before the crash:\n%q\nand after:\n%q", before, after)
	}

	for i, run := range r.runs {
		run.resume(t, run.token, i)
	}
	r.waitFor(t, r.runs[len(r.runs)-1].id, "hook_received")
	r.restart(t)
	for _, run := range sleepers {
		run.want(t, run.id, "awake")
		r.wantLog(t, run.id, "run_created", "run_started", "wait_created", "wait_completed", "run_completed").wantSlept(t)
	}
	for i, run := range r.runs {
		run.wantEverything(t, r.server, run.id, i)
	}
}

// quiet waits for a period without deliveries, because a step that is running during a crash may be executed twice.
// TestStepsSurviveServerCrash covers that.
func (r *restarts) quiet(t *testing.T) {
	t.Helper()
	quiet := 0
	eventually(t, "no delivery is in flight", func() bool {
		if quiet++; r.inFlight.Load() > 0 {
			quiet = 0
		}
		return quiet > 20
	})
}

// logs returns the logs of the runs, which have not ended yet.
func (r *restarts) logs(t *testing.T) (logs [][]string) {
	t.Helper()
	for _, run := range r.runs {
		logs = append(logs, log(r.events(t, run.id)).lines())
	}
	return logs
}

// restart stops the server gracefully and starts it again.
func (s *server) restart(t *testing.T) {
	t.Helper()
	s.Stop(t)
	s.start(t)
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
