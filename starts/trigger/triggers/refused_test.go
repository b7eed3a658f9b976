package triggers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// TestFullLimitRefusesARequestAndPutsWorkOff, which does not count as a delivery.
func TestFullLimitRefusesARequestAndPutsWorkOff(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	limits := limit.NewStore(s.Pool, time.Now)
	if _, err := limits.Put(t.Context(), project, "one", limit.Spec{PerKey: 1, OnFull: limit.Reject}); err != nil {
		t.Fatal(err)
	}
	_, err := limits.PutPolicy(t.Context(), limit.Policy{
		Project: project, Workflow: "report", Limits: []limit.PolicyUse{{Name: "one"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	holder := s.run(t, func(r *eventlog.Request) { r.Data.WorkflowName = "report" })
	check := func(err error, want trigger.Decision) {
		t.Helper()
		failure, ok := errors.AsType[*queue.Failure](err)
		if !ok || failure.Reached || failure.After <= 0 {
			t.Errorf("got %v, want a failure that does not count", err)
		}
		list := s.history(t)
		if last := list[len(list)-1]; last.Decision != want || !strings.Contains(last.Reason, "limit one") {
			t.Errorf("got %+v, want that it is %s because of the limit", last, want)
		}
	}
	s.put(t, onSignal(""))
	s.post(t, `1`)
	s.do(t, message.WorkSignal)
	d, _ := s.Claim(t, message.WorkTrigger, "")
	check(s.Handle(t.Context(), d), trigger.Retrying)
	hook := s.put(t, trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"})
	request := triggers.Request{ID: "hreq_1", Payload: []byte(`{}`)}
	_, err = s.Receive(t.Context(), hook, request)
	check(err, trigger.Refused)
	s.end(t, holder, entities.EventRunCompleted)
	if got, err := s.Receive(t.Context(), hook, request); err != nil || got.Decision != trigger.Started {
		t.Errorf("again: got %+v, %v", got, err)
	}
}

// TestChangedTriggerSkipsWhatItHasWaitedFor and has work for.
func TestChangedTriggerSkipsWhatItHasWaitedFor(t *testing.T) {
	t.Parallel()
	other := onSignal("")
	other.Source = "refunded"
	failed := onEnd("")
	failed.Statuses = []entities.RunStatus{entities.RunFailed}
	for name, tt := range map[string]struct {
		before, after trigger.Spec
		reason        string
	}{
		"signal":    {onSignal(""), other, "something else"},
		"condition": {onSignal(""), onSignal("data > 1"), "the condition is false"},
		"kind":      {onSignal(""), onEnd(""), "something else"},
		"statuses":  {onEnd(""), failed, "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newApp(t)
			s.put(t, tt.before)
			s.post(t, `1`)
			s.do(t, message.WorkSignal)
			if tt.before.Kind == trigger.KindRunEnded {
				s.end(t, s.run(t), entities.EventRunCompleted)
			}
			s.put(t, tt.after)
			s.do(t, message.WorkTrigger)
			if list := s.wantHistory(t, trigger.Skipped); !t.Failed() && !strings.Contains(list[0].Reason, tt.reason) {
				t.Errorf("got the reason %q, want %q", list[0].Reason, tt.reason)
			}
		})
	}
}
