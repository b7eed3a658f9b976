package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
)

// askToCancel asks a run to cancel within the grace, and returns the run.
func (d *server) askToCancel(t *testing.T, id entities.RunID, grace time.Duration) entities.Run {
	t.Helper()
	run, _, err := d.log.Cancel(t.Context(), project, eventlog.Request{
		RunID: id, Grace: grace, Data: entities.EventData{Reason: "ordered twice"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// lastEvent returns the event that ended a run.
func (d *server) lastEvent(t *testing.T, id entities.RunID) entities.Event {
	t.Helper()
	d.waitForEnd(t, id)
	run, err := store.RunByID(t.Context(), d.pool, project, id)
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.log.Event(t.Context(), project, id, run.EndSeq)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// paysAndRefunds is a workflow that charges a card and waits for a hook. When it is asked to cancel, it refunds the
// money and ends.
func paysAndRefunds(c *functionCall) {
	switch {
	case c.Type == contract.TypeStep:
	case c.has("step_completed", "refund"):
		c.reply(object{"type": "cancelled"})
	case c.has("cancel_requested", ""):
		c.reply(object{"type": "runStep", "id": "refund"})
	default:
		c.reply(object{"type": "runStep", "id": "charge"}, object{"type": "openHook", "id": "h", "token": "T"})
	}
}

func TestCancelledRunCompensates(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, paysAndRefunds))
	id := d.startRun(t, `null`)
	d.waitForEvent(t, id, "step_completed charge")
	if run := d.askToCancel(t, id, time.Hour); run.Status != entities.RunRunning || run.ForcedAt == nil {
		t.Errorf("the run is %s and forced at %v, want it to run until it is", run.Status, run.ForcedAt)
	}
	end := d.lastEvent(t, id)
	if end.Type != entities.EventRunCancelled || end.Data.Reason != "ordered twice" || end.Data.ForcedAt != nil {
		t.Errorf("the run ended with %s, %+v", end.Type, end.Data)
	}
	want := []string{
		"run_created", "run_started", "step_created charge", "step_started charge", "hook_created h", "step_completed charge",
		"cancel_requested", "step_created refund", "step_started refund", "step_completed refund", "run_cancelled",
	}
	if got := d.events(t, id); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got events %q, want %q", got, want)
	}
	d.waitForEmptyQueue(t)
}

// TestGraceIsEnforced by a server that did not know the run before, while a call is under way whose answer comes late.
func TestGraceIsEnforced(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	called, closed := make(chan struct{}, 10), make(chan struct{}, 10)
	f := serve(t, func(c *functionCall) {
		called <- struct{}{}
		waitForHangUp(c)
		c.reply(object{"type": "complete", "output": "late"})
		closed <- struct{}{}
	})
	first, second := newServer(t, dsn), newServer(t, dsn)
	first.register(t, deployment, f.URL)
	first.log.EndPoll = time.Hour // a notification closes the call
	first.worker(t, first.works)
	id := first.startRun(t, `null`)
	testdb.Receive(t, "a call", called)
	asked := second.askToCancel(t, id, time.Millisecond)
	second.worker(t, second.works)
	end := second.lastEvent(t, id)
	if end.Type != entities.EventRunCancelled || end.Data.Reason != "ordered twice" || end.Data.ForcedAt == nil {
		t.Errorf("the run ended with %s, %+v, want it forced", end.Type, end.Data)
	}
	if end.CreatedAt.Before(*asked.ForcedAt) {
		t.Errorf("the run ended at %s, before its grace was over at %s", end.CreatedAt, asked.ForcedAt)
	}
	testdb.Receive(t, "the end of the call", closed)
	second.waitForEmptyQueue(t)
}

// passDeadlines lets the time of all runs be over.
func (d *server) passDeadlines(t *testing.T) {
	t.Helper()
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE work = 'deadline'`)
}

func TestTimeoutCompensates(t *testing.T) {
	t.Parallel()
	const late = `{"message":"the run did not end in time","code":"timeout"}`
	for name, tt := range map[string]struct {
		grace  time.Duration
		obeys  bool
		forced bool
	}{
		"in time":  {grace: time.Hour, obeys: true},
		"too late": {grace: time.Millisecond, forced: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startServer(t, serve(t, func(c *functionCall) {
				if tt.obeys {
					paysAndRefunds(c)
				} else if c.Type == contract.TypeWorkflow {
					c.reply(object{"type": "openHook", "id": "h", "token": "T"})
				}
			}))
			id := d.startRun(t, `null`, func(r *eventlog.Request) {
				at := time.Now().Add(time.Hour)
				r.Data.Deadline, r.Data.TimeoutGraceMS = &at, tt.grace.Milliseconds()
			})
			d.waitForEvent(t, id, "hook_created h")
			d.passDeadlines(t)
			d.wantEnd(t, id, entities.RunFailed, late)
			end := d.lastEvent(t, id)
			if end.Data.ErrorCode != contract.CodeTimeout || (end.Data.ForcedAt != nil) != tt.forced {
				t.Errorf("the run ended with %+v", end.Data)
			}
			if n := d.countEvents(t, id, "cancel_requested"); n != 1 {
				t.Errorf("the run was asked %d times, want once", n)
			}
			if refunds := d.countEvents(t, id, "step_completed refund"); (refunds == 1) != tt.obeys {
				t.Errorf("%d refunds", refunds)
			}
			d.waitForEmptyQueue(t)
		})
	}
}

// TestCancelRightAfterStartEndsARun that has not started: it has nothing to compensate.
func TestCancelRightAfterStartEndsARun(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	if run := d.askToCancel(t, id, time.Hour); run.Status != entities.RunCancelled {
		t.Errorf("the run is %s, want cancelled", run.Status)
	}
	d.waitForEmptyQueue(t)
}

// TestCancelledStepsCallIsClosed by a notification, while its run goes on.
func TestCancelledStepsCallIsClosed(t *testing.T) {
	t.Parallel()
	called, closed := make(chan struct{}, 10), make(chan struct{}, 10)
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			called <- struct{}{}
			waitForHangUp(c)
			_, _ = c.w.Write([]byte(`"late"`))
			closed <- struct{}{}
		case c.has("hook_received", "again"):
			c.reply(object{"type": "complete", "output": c.log["step_failed slow"]})
		case c.has("hook_received", "stop"):
			c.reply(object{"type": "cancelStep", "id": "slow", "reason": "the other was faster"})
		default:
			c.reply(object{"type": "runStep", "id": "slow"}, object{"type": "openHook", "id": "stop", "token": "T"},
				object{"type": "openHook", "id": "again", "token": "U"})
		}
	})
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, f.URL)
	d.log.EndPoll = time.Hour
	d.worker(t, d.works)
	id := d.startRun(t, `null`)
	testdb.Receive(t, "a call", called)
	d.resume(t, id, "stop", `null`)
	testdb.Receive(t, "the end of the call", closed)
	d.waitForEvent(t, id, "step_failed slow")
	testdb.Eventually(t, "the work of the step is gone", func() bool {
		return d.Count(t, `SELECT count(*) FROM messages WHERE work = 'step'`) == 0
	})
	d.resume(t, id, "again", `null`)
	d.wantEnd(t, id, entities.RunCompleted, `{"message":"the other was faster","code":"cancelled"}`)
	if n := d.countEvents(t, id, "step_completed slow"); n != 0 {
		t.Error("the late answer counted")
	}
}

// TestLosersWakeNobody counts the invocations of a run that cancels a wait, a step and a child: after the answer, the
// run waits for its hook only.
func TestLosersWakeNobody(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	d := startServer(t, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			waitForHangUp(c)
			return
		}
		calls.Add(1)
		switch {
		case c.has("hook_received", "end"):
			c.reply(object{"type": "complete", "output": c.log["wait_cancelled w"]})
		case c.has("hook_received", "win"):
			c.reply(object{"type": "cancelWait", "id": "w"}, object{"type": "cancelStep", "id": "s"},
				object{"type": "cancelWait", "id": "w"})
		default:
			c.reply(object{"type": "wait", "id": "w", "for": "1h"}, object{"type": "runStep", "id": "s"},
				object{"type": "openHook", "id": "win", "token": "T"}, object{"type": "openHook", "id": "end", "token": "U"})
		}
	}))
	id := d.startRun(t, `null`)
	d.waitForEvent(t, id, "hook_created end")
	d.resume(t, id, "win", `null`)
	d.waitForEvent(t, id, "wait_cancelled w")
	d.waitForEmptyQueue(t) // not even a message for the end of the wait is left
	if n := calls.Load(); n != 2 {
		t.Errorf("%d invocations, want 2", n)
	}
	d.resume(t, id, "end", `null`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	if n := calls.Load(); n != 3 {
		t.Errorf("%d invocations, want 3", n)
	}
}

// TestCancelledChildEndsItsStep when it has ended in its own way.
func TestCancelledChildEndsItsStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer object // of the child that is asked to cancel
		grace  string
		late   bool // the child starts before it is cancelled
		event  string
		result string // of the step
	}{
		"it tidies up": {object{"type": "complete", "output": "tidy"}, "1h", true, "step_completed", `"tidy"`},
		"it cancels":   {object{"type": "cancelled"}, "1h", true, "step_failed", `{"message":"run %s was cancelled","code":"child_cancelled"}`},
		"it is forced": {nil, "1ms", true, "step_failed", `{"message":"run %s was cancelled","code":"child_cancelled"}`},
		"at once":      {nil, "0s", true, "step_failed", `{"message":"run %s was cancelled","code":"child_cancelled"}`},
		"in the answer that starts it": {
			object{"type": "cancelled"}, "1h", false, "step_failed", `{"message":"run %s was cancelled","code":"child_cancelled"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stop := object{"type": "cancelStep", "id": "kid", "reason": "not needed", "grace": tt.grace}
			d := startServer(t, serve(t, func(c *functionCall) {
				asked := c.has("cancel_requested", "")
				switch {
				case c.Run.Workflow == "child" && asked && tt.answer != nil:
					c.reply(tt.answer)
				case c.Run.Workflow == "child":
					c.reply(object{"type": "openHook", "id": "h"})
				case c.has(tt.event, "kid"):
					c.reply(object{"type": "complete", "output": c.log[tt.event+" kid"]})
				case c.has("hook_received", "stop"):
					c.reply(stop)
				case tt.late:
					c.reply(object{"type": "startChild", "id": "kid", "workflow": "child"},
						object{"type": "openHook", "id": "stop", "token": "T"})
				default:
					c.reply(object{"type": "startChild", "id": "kid", "workflow": "child"}, stop)
				}
			}))
			id := d.startRun(t, `null`)
			if tt.late {
				d.waitForEvent(t, id, "hook_created stop")
				var child entities.RunID
				d.Scan(t, `SELECT id FROM runs WHERE parent_id = $1`, []any{id}, &child)
				d.waitForEvent(t, child, "hook_created h")
				d.resume(t, id, "stop", `null`)
			}
			status, result := d.waitForEnd(t, id)
			var child entities.RunID
			d.Scan(t, `SELECT id FROM runs WHERE parent_id = $1`, []any{id}, &child)
			want := tt.result
			if tt.event == "step_failed" {
				want = fmt.Sprintf(want, child)
			}
			if status != entities.RunCompleted || result != want {
				t.Errorf("the parent is %s with %s, want %s; its log is\n%s", status, result, want, d.describe(t, id))
			}
			end := d.lastEvent(t, child)
			if end.Type == entities.EventRunCancelled && end.Data.Reason != "not needed" {
				t.Errorf("the child ended with %+v", end.Data)
			}
			d.waitForEmptyQueue(t)
		})
	}
}

// TestBadCancellationsAreRefused, and change nothing.
func TestBadCancellationsAreRefused(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, run := d.startInvocation(t)
	for name, tt := range map[string]struct {
		command string
		want    error
	}{
		"a step that does not exist":  {`{"type":"cancelStep","id":"none"}`, entities.ErrStepNotFound},
		"a wait that does not exist":  {`{"type":"cancelWait","id":"none"}`, entities.ErrWaitNotFound},
		"nobody has asked":            {`{"type":"cancelled"}`, entities.ErrInvalid},
		"a command after it":          {`{"type":"cancelled"},{"type":"closeHook","id":"old"}`, entities.ErrInvalid},
		"a grace that is no duration": {`{"type":"cancelStep","id":"none","grace":"soon"}`, entities.ErrInvalid},
		"a grace without a timeout":   {`{"type":"startChild","id":"c","workflow":"w","timeoutGrace":"1s"}`, entities.ErrInvalid},
	} {
		err := d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+tt.command+`]}`))
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
	}
	if n := d.countNewEvents(t, run.ID); n != 0 {
		t.Errorf("%d events were written", n)
	}
	const only = `{"commands":[{"type":"closeHook","id":"old"},{"type":"wait","id":"w","for":"1h"},{"type":"cancelWait","id":"w"}]}`
	if err := d.runs.answer(t.Context(), work, run, []byte(only)); !errors.Is(err, ErrNothingLeft) {
		t.Errorf("the run waits for nothing: got error %v, want ErrNothingLeft", err)
	}
}

// TestRacersCancelARun: one asks it to cancel, others with shorter graces, while one ends it by force and one answers.
// Whoever comes first, the run ends once, and the rows are the fold of its log.
func TestRacersCancelARun(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	d := idleServer(t, dsn)
	for round := range 10 {
		d.Exec(t, `DELETE FROM messages`)
		d.Exec(t, `DELETE FROM runs`)
		work, run := d.startInvocation(t)
		first := d.askToCancel(t, run.ID, 2*time.Hour)
		others := make([]*server, 4)
		for i := range others {
			others[i] = idleServer(t, dsn)
		}
		var force queue.Delivery
		if round%2 == 1 {
			force = d.claim(t, message.WorkCancel, "")
		}
		racers := []func() error{
			func() error {
				return others[0].runs.answer(t.Context(), work, run, []byte(`{"commands":[{"type":"cancelled"}]}`))
			},
			func() error { others[1].askToCancel(t, run.ID, time.Hour); return nil },
			func() error { others[2].askToCancel(t, run.ID, time.Minute); return nil },
			func() error {
				if force.Lease == "" {
					return nil
				}
				return others[3].runs.cancel(t.Context(), force)
			},
		}
		done := make(chan error, len(racers))
		for _, r := range racers {
			go func() { done <- r() }()
		}
		for range racers {
			if err := <-done; err != nil && !queue.IsOver(err) && !errors.Is(err, entities.ErrConflict) {
				t.Error(err)
			}
		}
		end := d.lastEvent(t, run.ID)
		if end.Type != entities.EventRunCancelled || d.countEvents(t, run.ID, "run_cancelled") != 1 {
			t.Errorf("the run ended with %s; its log is\n%s", end.Type, d.describe(t, run.ID))
		}
		ended, err := store.RunByID(t.Context(), d.pool, project, run.ID)
		if err != nil || ended.ForcedAt == nil || ended.ForcedAt.After(*first.ForcedAt) {
			t.Errorf("the run is forced at %v, want at %v at the latest (%v)", ended.ForcedAt, first.ForcedAt, err)
		}
		d.Want(t, "messages are left", 0, `SELECT count(*) FROM messages`)
	}
}

// TestShorterGraceCounts whichever request comes first, and the work is due at the earliest end.
func TestShorterGraceCounts(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	_, run := d.startInvocation(t)
	hour := d.askToCancel(t, run.ID, time.Hour)
	if longer := d.askToCancel(t, run.ID, 2*time.Hour); !longer.ForcedAt.Equal(*hour.ForcedAt) {
		t.Errorf("a longer grace moved the end from %s to %s", hour.ForcedAt, longer.ForcedAt)
	}
	minute := d.askToCancel(t, run.ID, time.Minute)
	if got := hour.ForcedAt.Sub(*minute.ForcedAt); got < 58*time.Minute {
		t.Errorf("a shorter grace moved the end by %s, want 59m", got)
	}
	if n := d.countEvents(t, run.ID, "cancel_requested"); n != 2 {
		t.Errorf("%d requests in the log, want 2", n)
	}
	d.Want(t, "messages end the run after a minute", 1, `SELECT count(*) FROM messages WHERE work = 'cancel' AND due_at < now() + interval '2 min'`)
}

// TestRunsOfTheSDKAreNotAsked: its functions would not know.
func TestRunsOfTheSDKAreNotAsked(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id := d.startRun(t, `null`, func(r *eventlog.Request) { r.Data.Driver = entities.DriverClient })
	_, _, err := d.log.Cancel(t.Context(), project, eventlog.Request{RunID: id, Grace: time.Minute})
	if !errors.Is(err, eventlog.ErrGraceUnsupported) {
		t.Errorf("got error %v, want ErrGraceUnsupported", err)
	}
	if n := d.countEvents(t, id, "cancel_requested"); n != 0 {
		t.Error("it was asked nevertheless")
	}
}

// TestChildIsCancelledDuringACall: the command writes no event, and its work is stored nevertheless.
func TestChildIsCancelledDuringACall(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	work, run := d.startInvocation(t)
	for _, command := range []string{
		`{"type":"startChild","id":"kid","workflow":"child"}`, `{"type":"cancelStep","id":"kid","grace":"1m"}`,
	} {
		if _, err := d.runs.Command(t.Context(), callOf(run.ID, work.Lease), []byte(`{"commands":[`+command+`]}`)); err != nil {
			t.Fatal(err)
		}
	}
	const kid = `SELECT count(*) FROM messages m JOIN runs r ON r.id = m.run_id WHERE r.parent_id = $1 AND work = 'cancel' AND subject = '1m0s'`
	d.Want(t, "messages cancel the child", 1, kid, run.ID)
}

// TestCancellationEndsABackoff: an invocation that waits because its function failed is made at once. One that is
// parked stays so, and the run is forced.
func TestCancellationEndsABackoff(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	for change, want := range map[string]int{``: 1, `, parked_at = now()`: 0} {
		d.Exec(t, `DELETE FROM messages`)
		d.Exec(t, `DELETE FROM runs`)
		_, run := d.startInvocation(t)
		d.Exec(t, `UPDATE messages SET lease = '', holder = '', last_error = 'it failed', delivery_count = 9,
			due_at = now() + interval '15 min'`+change+` WHERE work = 'run'`)
		const due = `
			SELECT count(*) FROM messages
			WHERE work = 'run' AND due_at <= now() AND delivery_count = 9 AND last_error <> ''`
		d.resume(t, run.ID, "old", `null`)
		d.Want(t, "messages due after a payload", 0, due)
		d.askToCancel(t, run.ID, time.Minute)
		if n := d.Count(t, due); n != want {
			t.Errorf("with %q, %d messages invoke the run now, want %d", change, n, want)
		}
	}
}
