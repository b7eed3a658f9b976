package triggers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

func TestSignalStartsARun(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal("data.amount > 100"))
	s.post(t, `{"amount": 7}`)
	paid := s.post(t, `{"amount":  120}`)
	s.settle(t)
	list := s.wantHistory(t, trigger.Skipped, trigger.Started)
	if list[1].Event != string(paid) {
		t.Errorf("the event is %s, want %s", list[1].Event, paid)
	}
	if got := s.input(t, list[1].RunID); got != `{"amount":  120}` {
		t.Errorf("the input is %s, want the signal's data byte for byte", got)
	}
	if want := "the condition is false: data.amount > 100"; list[0].Reason != want {
		t.Errorf("got the reason %q, want %q", list[0].Reason, want)
	}
}

// TestSignalGoesThroughTriggersBeforeHooks and reaches both.
func TestSignalGoesThroughTriggersBeforeHooks(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal(""))
	id := s.run(t)
	_, err := s.Log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventHookCreated, CorrelationID: "h", SpecVersion: entities.SpecDriven,
		Data: entities.EventData{Token: "token", Signal: "paid"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.post(t, `1`)
	d, _ := s.Claim(t, message.WorkSignal, "")
	s.Exec(t, `ALTER TABLE events ADD CONSTRAINT broken CHECK (type <> 'hook_received') NOT VALID`)
	if err := s.handlers[message.WorkSignal](t.Context(), d); err == nil {
		t.Fatal("the hook was resumed")
	}
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'trigger'`); n != 1 {
		t.Errorf("there are %d pieces of work for triggers before the hooks, want 1", n)
	}
	s.do(t, message.WorkTrigger)
	s.Exec(t, `ALTER TABLE events DROP CONSTRAINT broken`)
	s.settle(t) // the work is done again, for the hook only
	s.wantHistory(t, trigger.Started)
	if n := s.Count(t, `SELECT count(*) FROM events WHERE type = 'hook_received'`); n != 1 {
		t.Errorf("the hook received %d signals, want 1", n)
	}
}

// TestReasonsCanBeStored: the error of a condition quotes what the sender has chosen, which Postgres cannot store.
func TestReasonsCanBeStored(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal("data.map[data.key]"))
	s.post(t, `{"map": {}, "key": "\u0000"}`)
	s.settle(t)
	if list := s.wantHistory(t, trigger.Skipped); !strings.Contains(list[0].Reason, "no such key") {
		t.Errorf("got the reason %q", list[0].Reason)
	}
}

func TestEndOfARunStartsARun(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onEnd("data.status == 'completed' && data.output.sum == 7 && run.attributes.tier == 'gold'")
	s.put(t, spec)
	gold := func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"tier": "gold"} }
	ended, plain, cancelled := s.run(t, gold), s.run(t), s.run(t, gold)
	s.run(t, gold) // does not end
	s.end(t, ended, entities.EventRunCompleted)
	s.end(t, plain, entities.EventRunCompleted)
	s.end(t, cancelled, entities.EventRunCancelled)
	s.do(t, message.WorkTrigger)
	list := s.wantHistory(t, trigger.Started, trigger.Skipped, trigger.Skipped)
	var got map[string]any
	if err := json.Unmarshal([]byte(s.input(t, list[0].RunID)), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"runId": string(ended), "workflow": "order", "status": "completed",
		"attributes": map[string]any{"tier": "gold"}, "output": map[string]any{"sum": 7.0},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the input %v, want %v", got, want)
	}
	if !strings.Contains(list[1].Reason, "tier") {
		t.Errorf("got the reason %q, want the attribute that is missing", list[1].Reason)
	}
	if want := `the condition is false: data.status == "completed"`; list[2].Reason != want {
		t.Errorf("got the reason %q, want %q", list[2].Reason, want)
	}
}

// TestEndOfAClientsRunStartsARun: the Workflow SDK continues the run itself, and encodes its output in a way of its own.
func TestEndOfAClientsRunStartsARun(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onEnd(""))
	id := s.run(t, func(r *eventlog.Request) { r.Data.Driver = entities.DriverClient })
	s.end(t, id, entities.EventRunCompleted)
	s.do(t, message.WorkTrigger)
	list := s.wantHistory(t, trigger.Started)
	if got := s.input(t, list[0].RunID); strings.Contains(got, "output") || !strings.Contains(got, string(id)) {
		t.Errorf("got the input %s", got)
	}
}

// TestOnlyEndsThatATriggerWaitsForLeaveWork: of another workflow, status, project, or while the trigger is paused.
func TestOnlyEndsThatATriggerWaitsForLeaveWork(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onEnd("")
	spec.Statuses = []entities.RunStatus{entities.RunFailed}
	s.put(t, spec)
	s.end(t, s.run(t), entities.EventRunCompleted)
	s.end(t, s.run(t, func(r *eventlog.Request) { r.Data.WorkflowName = "other" }), entities.EventRunFailed)
	if _, err := s.Pause(t.Context(), project, "t", ""); err != nil {
		t.Fatal(err)
	}
	s.end(t, s.run(t), entities.EventRunFailed)
	foreign := entities.NewRunID(time.Now())
	for _, r := range []eventlog.Request{
		{Type: entities.EventRunCreated, Data: entities.EventData{
			Driver: entities.DriverServer, WorkflowName: "order", DeploymentID: "dpl",
		}},
		{Type: entities.EventRunFailed, Payload: []byte(`{}`)},
	} {
		r.RunID, r.SpecVersion = foreign, entities.SpecDriven
		if _, err := s.Log.Append(t.Context(), "away", r); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'trigger'`); n != 0 {
		t.Errorf("%d ends left work", n)
	}
	if _, err := s.Resume(t.Context(), project, "t"); err != nil {
		t.Fatal(err)
	}
	s.end(t, s.run(t), entities.EventRunFailed)
	s.do(t, message.WorkTrigger)
	s.wantHistory(t, trigger.Started)
}

// TestCachedEndSeesANewTrigger: another process puts a trigger after this one has cached a run. The end of the run must
// not be decided from the cache.
func TestCachedEndSeesANewTrigger(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, other := newServer(t, dsn), newServer(t, dsn)
	s.Register(t)
	id := s.run(t)
	other.put(t, onEnd(""))
	s.end(t, id, entities.EventRunCompleted)
	s.do(t, message.WorkTrigger)
	s.wantHistory(t, trigger.Started)
}

func TestStartsThatCannotSucceedAreRefused(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onSignal("")
	spec.UniqueKey = "one"
	s.put(t, spec)
	s.post(t, `1`)
	s.post(t, `2`)
	s.settle(t)
	list := s.wantHistory(t, trigger.Started, trigger.Refused)
	if list[1].RunID != list[0].RunID || !strings.Contains(list[1].Reason, "has the key") {
		t.Errorf("got %+v, want the run that has the key", list[1])
	}
	spec.Joins = true
	s.put(t, spec)
	s.post(t, `3`)
	s.settle(t)
	if list = s.wantHistory(t, trigger.Started, trigger.Refused, trigger.Joined); list[2].RunID != list[0].RunID {
		t.Errorf("got %+v, want the run that was joined", list[2])
	}
	if err := s.Queue.RemoveDeployment(t.Context(), project, "dpl"); err != nil {
		t.Fatal(err)
	}
	s.post(t, `4`)
	s.settle(t)
	list = s.wantHistory(t, trigger.Started, trigger.Refused, trigger.Joined, trigger.Refused)
	if !strings.Contains(list[3].Reason, "no app with workflow") {
		t.Errorf("got the reason %q", list[3].Reason)
	}
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work IN ('trigger', 'signal')`); n != 0 {
		t.Errorf("%d pieces of work are left", n)
	}
}

// TestFailedStartIsRecordedAndTriedAgain, and its record is replaced.
func TestFailedStartIsRecordedAndTriedAgain(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal(""))
	s.post(t, `1`)
	s.do(t, message.WorkSignal)
	d, _ := s.Claim(t, message.WorkTrigger, "")
	s.Exec(t, `ALTER TABLE runs ADD CONSTRAINT broken CHECK (workflow_name <> 'report') NOT VALID`)
	if err := s.Handle(t.Context(), d); err == nil {
		t.Fatal("got no error")
	}
	list := s.wantHistory(t, trigger.Retrying)
	if !strings.Contains(list[0].Reason, "broken") {
		t.Errorf("got the reason %q", list[0].Reason)
	}
	s.Exec(t, `ALTER TABLE runs DROP CONSTRAINT broken`)
	s.settle(t)
	s.wantHistory(t, trigger.Started)
}

// TestLoopsEnd: a trigger waits for the ends of the runs that it starts. The attribute counts, also through a parent.
func TestLoopsEnd(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onEnd("")
	spec.Source = "report"
	s.put(t, spec)
	id := s.run(t, func(r *eventlog.Request) { r.Data.WorkflowName = "report" })
	for n := range trigger.MaxDepth + 1 {
		child := s.run(t, func(r *eventlog.Request) {
			r.Data.WorkflowName, r.Data.ParentID = "report", id
		})
		s.end(t, child, entities.EventRunCompleted)
		s.do(t, message.WorkTrigger)
		list := s.history(t)
		if last := list[len(list)-1]; n < trigger.MaxDepth && last.Decision == trigger.Started {
			id = last.RunID
		} else if n < trigger.MaxDepth || last.Decision != trigger.Refused || !strings.Contains(last.Reason, "the limit is 8") {
			t.Fatalf("end %d: %+v", n, last)
		}
	}
}

// TestRequestStartsOnce however often it is sent, also by two servers at once.
func TestRequestStartsOnce(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	trg := s.put(t, trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report", Condition: "data.body.ok"})
	request := triggers.Request{ID: "hreq_1", Digest: "d", Payload: []byte(`{"body":{"ok":true}}`)}
	first, err := s.Receive(t.Context(), trg, request)
	if err != nil || first.Decision != trigger.Started {
		t.Fatalf("got %+v, %v", first, err)
	}
	if again, err := s.Receive(t.Context(), trg, request); err != nil || again.RunID != first.RunID {
		t.Errorf("again: got %+v, %v; want run %s", again, err, first.RunID)
	}
	request.Digest = "other"
	if got, err := s.Receive(t.Context(), trg, request); !errors.Is(err, entities.ErrKeyReused) {
		t.Errorf("another request of the same ID: got %+v, %v", got, err)
	}
	skipped, err := s.Receive(t.Context(), trg, triggers.Request{ID: "hreq_2", Payload: []byte(`{"body":{"ok":false}}`)})
	if err != nil || skipped.Decision != trigger.Skipped {
		t.Errorf("got %+v, %v", skipped, err)
	}
	s.wantHistory(t, trigger.Started, trigger.Skipped)
}

// TestStaleTriggerStartsNothing: between the read and the start, it is changed, paused or deleted.
func TestStaleTriggerStartsNothing(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	stale := s.put(t, trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"})
	request := triggers.Request{ID: "hreq_1", Payload: []byte(`{}`)}
	if _, err := s.Pause(t.Context(), project, "t", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Receive(t.Context(), stale, request); !errors.Is(err, trigger.ErrNotFound) {
		t.Errorf("paused: got %+v, %v", got, err)
	}
	if _, err := s.Resume(t.Context(), project, "t"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Receive(t.Context(), stale, request); err != nil || got.Decision != trigger.Started {
		t.Errorf("resumed: got %+v, %v", got, err)
	}
	s.wantHistory(t, trigger.Started)
	if err := s.Delete(t.Context(), project, "t"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Receive(t.Context(), stale, triggers.Request{ID: "hreq_2", Payload: []byte(`{}`)}); !errors.Is(err, trigger.ErrNotFound) {
		t.Errorf("deleted: got %+v, %v", got, err)
	}
	if n := s.Count(t, `SELECT count(*) FROM trigger_events`); n != 0 {
		t.Errorf("%d rows of history are left", n)
	}
}
