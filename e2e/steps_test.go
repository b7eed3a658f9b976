package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sequentialSteps(t *testing.T, s *server, a *app) {
	id := a.run(t, "sequential", 1)
	a.want(t, id, 4)
	s.wantLog(t, id, sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
	a.wantCounts(t, id, map[string]int{"add": 3})

	if run := s.run(t, id); run.Status != "completed" || string(run.Output) != "devl[4]" {
		t.Errorf("status %s with output %q, want completed with devl[4]", run.Status, run.Output)
	}
}

func parallelSteps(t *testing.T, s *server, a *app) {
	id := a.run(t, "parallel", 10)
	a.want(t, id, []int{11, 12, 13})
	s.wantThreads(t, id, "3 × add: created started completed", "run: created started completed")
	a.wantCounts(t, id, map[string]int{"add": 3})
}

func fanOut(t *testing.T, s *server, a *app) {
	id := a.run(t, "fanout", 50)
	a.want(t, id, 1225)
	s.wantThreads(t, id, "50 × add: created started completed", "run: created started completed")
	a.wantCounts(t, id, map[string]int{"add": 50})

	type stepEntity struct {
		Status  string `cbor:"status"`
		Attempt int    `cbor:"attempt"`
	}
	steps := get[page[stepEntity]](t, s, "/v2/runs/"+id+"/steps?limit=100")
	if len(steps.Data) != 50 || steps.HasMore || steps.Cursor != nil {
		t.Errorf("%d steps, more: %v", len(steps.Data), steps.HasMore)
	}
	for _, step := range steps.Data {
		if step != (stepEntity{Status: "completed", Attempt: 1}) {
			t.Errorf("step %+v, want completed at attempt 1", step)
		}
	}
}

func retryableError(t *testing.T, s *server, a *app) {
	id := a.run(t, "retryable")
	a.want(t, id, 3)
	const name = " retriesTwice"
	l := s.wantLog(t, id, "run_created", "run_started", "step_created"+name,
		"step_started"+name, "step_retrying"+name,
		"step_started"+name, "step_retrying"+name,
		"step_started"+name, "step_completed"+name, "run_completed")
	a.wantCounts(t, id, map[string]int{"retriesTwice": 3})

	starts := l.of("step_started")
	for i, e := range l.of("step_retrying") {
		due, ok := e.Data["retryAfter"].(time.Time)
		if !ok || starts[i+1].CreatedAt.Before(due) {
			t.Errorf("attempt %d began at %s, before its retryAfter %v", i+2, starts[i+1].CreatedAt, e.Data["retryAfter"])
		}
	}
}

func fatalError(t *testing.T, s *server, a *app) {
	id := a.run(t, "fatal")
	a.wantFailure(t, id, "no use trying again")
	const name = " failsFatally"
	s.wantLog(t, id, "run_created", "run_started",
		"step_created"+name, "step_started"+name, "step_failed"+name, "run_failed")
	a.wantCounts(t, id, map[string]int{"failsFatally": 1})
}

// retriesExhausted runs a step that allows one retry.
func retriesExhausted(t *testing.T, s *server, a *app) {
	id := a.run(t, "exhausted")
	a.wantFailure(t, id, `Step "step//./workflows/steps//alwaysFails" failed after 1 retry: broken as ever`)
	const name = " alwaysFails"
	s.wantLog(t, id, "run_created", "run_started", "step_created"+name,
		"step_started"+name, "step_retrying"+name, "step_started"+name, "step_failed"+name, "run_failed")
	a.wantCounts(t, id, map[string]int{"alwaysFails": 2})
}

// wantFailure waits until a run has ended, and checks that it failed with the message.
func (a *app) wantFailure(t *testing.T, runID, message string) {
	t.Helper()
	want := outcome{
		Status: "failed", Error: &failure{Name: "WorkflowRunFailedError", Message: message, Code: "USER_ERROR"},
	}
	if diff := cmp.Diff(want, a.outcome(t, runID)); diff != "" {
		t.Fatalf("outcome of %s (-want +got):\n%s", runID, diff)
	}
}

func shortSleep(t *testing.T, s *server, a *app) {
	id := a.run(t, "sleepShort")
	a.want(t, id, 2)
	l := s.wantLog(t, id, sequence("run_created", "run_started", step("tick"),
		"wait_created", "wait_completed", step("tick"), "run_completed")...)
	l.wantSlept(t)
	a.wantCounts(t, id, map[string]int{"tick": 2})
}

// wantSlept checks that the log's only wait ended no earlier than its resumeAt, and that both events have the same
// resumeAt.
func (l log) wantSlept(t *testing.T) {
	t.Helper()
	created, completed := l.of("wait_created")[0], l.of("wait_completed")[0]
	due, ok := created.Data["resumeAt"].(time.Time)
	if !ok || completed.CreatedAt.Before(due) {
		t.Errorf("woke up at %s, before %v", completed.CreatedAt, created.Data["resumeAt"])
	}
	if again, ok := completed.Data["resumeAt"].(time.Time); ok && !again.Equal(due) {
		t.Errorf("resumeAt changed from %s to %s", due, again)
	}
}

// noKey checks that requests without an API key reach only the public routes.
func noKey(t *testing.T, s *server, a *app) {
	id := a.run(t, "sequential", 1)
	for path, want := range map[string]int{
		"/sdk/v2/runs/" + id:             http.StatusUnauthorized,
		"/sdk/v4/runs/" + id + "/events": http.StatusUnauthorized,
		"/v1/deployments":                http.StatusUnauthorized,
		"/healthz":                       http.StatusOK,
		"/readyz":                        http.StatusOK,
		"/clients/world.tgz":             http.StatusOK,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s without a key: got %d, want %d", path, resp.StatusCode, want)
		}
	}
	a.want(t, id, 4)
}
