package engine

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// The tests of this file are defects that were found in another engine, Ground Control, and must not occur in this one.
// TestResultsOfChildren is another: every end of a child reaches its parent.

// TestGroundControlFirstStepIsReplayed: the first step is executed once, like every other.
func TestGroundControlFirstStepIsReplayed(t *testing.T) {
	t.Parallel()
	var executed atomic.Int32
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			executed.Add(1)
			_, _ = c.w.Write(c.Step.Input)
		case !c.has("wait_completed", "pause"):
			c.reply(object{"type": "runStep", "id": "start", "input": c.Run.Input}, object{"type": "wait", "id": "pause", "for": "10ms"})
		default:
			completeWith("step_completed", "start")(c)
		}
	}))
	d.wantEnd(t, d.startRun(t, `7`), entities.RunCompleted, `7`)
	if n := executed.Load(); n != 1 {
		t.Errorf("the first step was executed %d times", n)
	}
}

// TestGroundControlStaleTimerIsHarmless: a wait that expires when the workflow is past it neither fails the run nor
// keeps it.
func TestGroundControlStaleTimerIsHarmless(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			<-over
			return
		}
		completeWith("step_completed", "ship",
			object{"type": "wait", "id": "stale", "for": "10ms"}, object{"type": "runStep", "id": "ship"})(c)
	}))
	id := d.startRun(t, `null`)
	d.waitForEvent(t, id, "wait_completed stale")
	close(over)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
}

// TestGroundControlDoubledResultDispatchesOnce: the second of two results of a step changes nothing and wakes nobody.
func TestGroundControlDoubledResultDispatchesOnce(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, requests := d.writeOfStep(t)
	if _, err := d.log.AppendAll(t.Context(), project, work.RunID, requests, d.runs.endWith(work)); err != nil {
		t.Fatal(err)
	}
	d.Exec(t, `DELETE FROM messages`)
	_, err := d.log.AppendAll(t.Context(), project, work.RunID, requests, eventlog.AppendOptions{})
	if !errors.Is(err, entities.ErrConflict) {
		t.Errorf("got error %v, want a conflict", err)
	}
	d.Want(t, "messages after the second result", 0, `SELECT count(*) FROM messages`)
	if n := d.countEvents(t, work.RunID, "store_set x"); n != 1 {
		t.Errorf("the store was written %d times", n)
	}
}

// TestGroundControlLateStoreWritesAreKeptOrRefused: those in the last answer are kept, those after the end refused.
func TestGroundControlLateStoreWritesAreKeptOrRefused(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, run := d.startInvocation(t)
	answer := `{"commands":[{"type":"setStore","id":"a","values":{"k":1}},{"type":"complete"}]}`
	if err := d.runs.answer(t.Context(), work, run, []byte(answer)); err != nil {
		t.Fatal(err)
	}
	_, err := d.runs.Command(t.Context(), callOf(work.RunID, work.Lease),
		[]byte(`{"commands":[{"type":"setStore","id":"b","values":{"k":2}}]}`))
	if !errors.Is(err, entities.ErrRunEnded) {
		t.Errorf("a write after the end: got error %v", err)
	}
	d.wantStore(t, work.RunID, map[string]string{"k": `1`})
}

// TestGroundControlUnknownMessageNeverHangs: a message to no inbox is refused at once, and one that the workflow does
// not understand wakes it all the same, so that it can fail.
func TestGroundControlUnknownMessageNeverHangs(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.has("hook_received", "inbox:notes") {
			c.reply(object{"type": "fail", "error": object{"message": "not a note", "code": "undecodable"}})
			return
		}
		c.reply()
	}))
	id := entities.NewRunID(d.log.Now())
	send := func(hook string) eventlog.Request {
		return eventlog.Request{
			RunID: id, Type: entities.EventHookReceived, CorrelationID: hook, SpecVersion: entities.SpecDriven,
			Payload: []byte(`{"unknown":1}`),
		}
	}
	run := eventlog.Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{DeploymentID: deployment, WorkflowName: "order", Driver: entities.DriverServer},
	}
	open := eventlog.Request{
		Type: entities.EventHookCreated, CorrelationID: "inbox:notes", SpecVersion: entities.SpecDriven, FreshToken: true,
		Data: entities.EventData{Token: "inbox of notes"},
	}
	if _, _, err := d.log.Start(t.Context(), project, run, open); err != nil {
		t.Fatal(err)
	}
	d.waitForEvent(t, id, "run_started")
	if _, err := d.log.Append(t.Context(), project, send("inbox:letters")); !errors.Is(err, entities.ErrHookNotFound) {
		t.Errorf("a message to no inbox: got error %v", err)
	}
	if _, err := d.log.Append(t.Context(), project, send("inbox:notes")); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, id, entities.RunFailed, `{"message":"not a note","code":"undecodable"}`)
}

// TestMessageBeforeTheFirstInvocationIsSeenByIt, and needs no other one.
func TestMessageBeforeTheFirstInvocationIsSeenByIt(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	for _, r := range []eventlog.Request{
		{Type: entities.EventHookCreated, CorrelationID: "inbox:notes", Data: entities.EventData{Token: "T"}},
		{Type: entities.EventHookReceived, CorrelationID: "inbox:notes", Payload: []byte(`1`)},
	} {
		r.RunID, r.SpecVersion = id, entities.SpecDriven
		if _, err := d.log.Append(t.Context(), project, r); err != nil {
			t.Fatal(err)
		}
	}
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.events(t, id); got[2] != "hook_received inbox:notes" || got[3] != "run_started" {
		t.Errorf("the log is %q: the call of the invocation must have the message", got)
	}
	if err := d.runs.answer(t.Context(), work, run, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	d.Want(t, "messages after the answer", 0, `SELECT count(*) FROM messages WHERE run_id = $1`, id)
	if err := d.runs.answer(t.Context(), work, run, []byte(`{}`)); !queue.IsOver(err) {
		t.Errorf("the same answer again: got error %v", err)
	}
}
