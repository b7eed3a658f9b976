package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func hookManyPayloads(t *testing.T, s *server, a *app) {
	const many = 20
	token := a.named("many")
	id := a.run(t, "hookMany", token, many)
	a.hook(t, id)
	var payloads []any
	for i := range many {
		payload := map[string]any{"number": i, "text": fmt.Sprintf("payload %d", i)}
		payloads = append(payloads, payload)
		a.resume(t, token, payload)
	}
	a.want(t, id, payloads)
	received := ""
	for range many {
		received += " received"
	}
	l := s.wantThreads(t, id, "hook: created"+received+" disposed", "run: created started completed",
		"tick: created started completed")
	for i, e := range l.of("hook_received") {
		want := fmt.Sprintf(`devl[{"number":1,"text":2},%d,"payload %[1]d"]`, i)
		if string(e.Payload) != want {
			t.Errorf("payload %d is %s, want %s", i, e.Payload, want)
		}
	}
}

// hookConflict checks that one run at a time holds a token, and that the token is free again after the run has ended.
func hookConflict(t *testing.T, s *server, a *app) {
	token := a.named("contested")
	holder := a.run(t, "hookHold", token)
	a.hook(t, holder)

	loser := a.run(t, "hookHold", token)
	lost := a.outcome(t, loser)
	conflict, _ := lost.Value.(map[string]any)["conflict"].(map[string]any)
	if conflict["name"] != "HookConflictError" || conflict["runId"] != holder {
		t.Errorf("outcome of the second claim: %+v; want a conflict with %s", lost, holder)
	}
	l := s.wantLog(t, loser, "run_created", "run_started", "hook_conflict", "run_completed")
	want := map[string]any{"token": token, "conflictingRunId": holder}
	if diff := cmp.Diff(want, l.of("hook_conflict")[0].Data); diff != "" {
		t.Errorf("data of hook_conflict (-want +got):\n%s", diff)
	}

	a.resumeHolder(t, s, holder, token)
	next := a.run(t, "hookHold", token)
	a.hook(t, next)
	a.resumeHolder(t, s, next, token)
	a.tryResume(t, token, 0).Want(t, http.StatusNotFound)
}

// resumeHolder resumes the run that holds the token, and checks that it completes.
func (a *app) resumeHolder(t *testing.T, s *server, runID, token string) {
	t.Helper()
	a.resume(t, token, runID)
	a.want(t, runID, map[string]any{"payload": runID})
	s.wantLog(t, runID, "run_created", "run_started", "hook_created", "hook_received", "run_completed")
}

func webhookDefault(t *testing.T, s *server, a *app) {
	id := a.run(t, "webhookDefault")
	hook := a.hook(t, id)
	if !hook.IsWebhook {
		t.Error("the hook is not a webhook")
	}
	a.callWebhook(t, hook.Token, "hello").Want(t, http.StatusAccepted)
	a.want(t, id, map[string]any{"method": "POST", "body": "hello"})
	s.wantWebhook(t, id, "__builtin_response_text")
	a.callWebhook(t, hook.Token, "too late").Want(t, http.StatusNotFound)
}

func webhookStatic(t *testing.T, s *server, a *app) {
	id := a.run(t, "webhookStatic")
	r := a.callWebhook(t, a.hook(t, id).Token, "hello").Want(t, http.StatusMultiStatus)
	if string(r.Body) != "static answer" || r.Header.Get("X-Answer") != "static" {
		t.Errorf("answer: %q, %q", r.Body, r.Header.Get("X-Answer"))
	}
	a.want(t, id, map[string]any{"method": "POST", "body": "hello"})
	s.wantWebhook(t, id, "__builtin_response_text")
}

func webhookManual(t *testing.T, s *server, a *app) {
	id := a.run(t, "webhookManual")
	r := a.callWebhook(t, a.hook(t, id).Token, "hello").Want(t, http.StatusCreated)
	if string(r.Body) != "manual: hello" || r.Header.Get("X-Answer") != "manual" {
		t.Errorf("answer: %q, %q", r.Body, r.Header.Get("X-Answer"))
	}
	a.want(t, id, map[string]any{"method": "POST", "body": "hello"})
	s.wantWebhook(t, id, "answer")
	a.wantCounts(t, id, map[string]int{"answer": 1})
}

// wantWebhook checks that the run received one request and read its body in one step.
func (s *server) wantWebhook(t *testing.T, runID, reads string) {
	t.Helper()
	s.wantLog(t, runID, sequence("run_created", "run_started", "hook_created", "hook_received",
		step(reads), "run_completed")...)
}

// cancelWhileRunning cancels a run that loops forever. The cancel ends the run and frees its token, and messages that
// are still in flight change nothing.
func cancelWhileRunning(t *testing.T, s *server, a *app) {
	token := a.named("cancelled")
	id := a.run(t, "cancelMe", token)
	a.hook(t, id)
	eventually(t, "the run sleeps for the second time", func() bool {
		return len(log(s.events(t, id)).of("wait_created")) >= 2
	})
	request(t, http.MethodPost, a.url()+"/runs/"+id+"/cancel", nil).Want(t, http.StatusOK)
	if got := a.outcome(t, id); got.Status != "cancelled" {
		t.Errorf("outcome: %+v", got)
	}
	s.wantCancelled(t, id)

	// The first run claims the freed token. The second sleeps longer than the cancelled run did, so that by its end the
	// cancelled run's last message has been delivered, too.
	next, later := a.run(t, "hookHold", token), a.run(t, "sleepShort")
	a.hook(t, next)
	a.resumeHolder(t, s, next, token)
	a.want(t, later, 2)
	s.wantCancelled(t, id)
}

// wantCancelled checks that the run is cancelled, and was cancelled once.
func (s *server) wantCancelled(t *testing.T, runID string) {
	t.Helper()
	if l := s.log(t, runID); len(l.of("run_cancelled")) != 1 {
		t.Errorf("want one run_cancelled:\n%v", l.lines())
	}
	if run := s.run(t, runID); run.Status != "cancelled" {
		t.Errorf("status %s, want cancelled", run.Status)
	}
}
