package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

type object = map[string]any

// completeWith returns a workflow that completes with the payload of an event, and answers with the given commands
// before.
func completeWith(event, id string, otherwise ...object) func(*functionCall) {
	return func(c *functionCall) {
		if !c.has(event, id) {
			c.reply(otherwise...)
			return
		}
		c.reply(object{"type": "complete", "output": c.log[event+" "+id]})
	}
}

// withStep returns a function of a workflow and a step.
func withStep(workflow, step func(*functionCall)) func(*functionCall) {
	return func(c *functionCall) {
		if c.Type == contract.TypeWorkflow {
			workflow(c)
		} else {
			step(c)
		}
	}
}

// countEvents returns how often the run's log has the event.
func (d *server) countEvents(t *testing.T, id entities.RunID, event string) int {
	t.Helper()
	n := 0
	for _, e := range d.events(t, id) {
		if e == event {
			n++
		}
	}
	return n
}

func TestFailedStepIsRetried(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	workflow := completeWith("step_completed", "pay", object{
		"type": "runStep", "id": "pay", "retry": object{"backoff": "10ms", "maxAttempts": 3},
	})
	d := startServer(t, serve(t, withStep(workflow, func(c *functionCall) {
		if n := tries.Add(1); n < 3 {
			c.w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(c.w, `{"attempt":%d,"key":%q}`, c.Attempt, c.r.Header.Get("Idempotency-Key"))
	})))
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf(`{"attempt":3,"key":"%s/pay"}`, id))
	if starts, retries := d.countEvents(t, id, "step_started pay"), d.countEvents(t, id, "step_retrying pay"); starts != 3 || retries != 2 {
		t.Errorf("%d starts and %d retries, want 3 and 2", starts, retries)
	}
}

// TestUnreachableFunctionUsesNoAttempts: an unreachable function does not fail its step before the timeout.
func TestUnreachableFunctionUsesNoAttempts(t *testing.T) {
	t.Parallel()
	workflow := completeWith("step_completed", "pay", object{
		"type": "runStep", "id": "pay", "deployment": "bank", "retry": object{"maxAttempts": 1},
	})
	d := startServer(t, serve(t, workflow))
	id := d.startRun(t, `null`)
	d.waitForEvent(t, id, "step_started pay")
	bank := serve(t, func(c *functionCall) { _, _ = fmt.Fprint(c.w, c.Attempt) })
	testdb.Eventually(t, "the step waits for its function", func() bool {
		list, _, err := d.Messages(t.Context(), project, queue.Filter{State: queue.StateWaiting}, pg.Page{Limit: 10})
		return err == nil && len(list) == 1 && strings.Contains(list[0].LastError, "not registered")
	})
	d.register(t, "bank", bank.URL)
	d.wantEnd(t, id, entities.RunCompleted, `1`)
	if n := d.countEvents(t, id, "step_started pay"); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
}

func TestStepTimeoutIncludesTimeInTheQueue(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"not registered": "", "away": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workflow := completeWith("step_failed", "pay", object{
				"type": "runStep", "id": "pay", "deployment": "bank", "timeout": "50ms",
			})
			d := startServer(t, serve(t, workflow))
			if url != "" {
				d.register(t, "bank", url)
			}
			status, payload := d.waitForEnd(t, d.startRun(t, `null`))
			if status != entities.RunCompleted || !strings.Contains(payload, `"code":"timeout"`) {
				t.Errorf("got %s %s, want a timeout", status, payload)
			}
		})
	}
}

// waitForHangUp waits until the caller closes the connection.
func waitForHangUp(c *functionCall) { <-c.r.Context().Done() }

func TestAttemptTimesOut(t *testing.T) {
	t.Parallel()
	workflow := completeWith("step_failed", "pay", object{
		"type": "runStep", "id": "pay", "attemptTimeout": "1s", "retry": object{"maxAttempts": 1},
	})
	d := startServer(t, serve(t, withStep(workflow, func(c *functionCall) {
		waitForHangUp(c)
	})))
	d.wantEnd(t, d.startRun(t, `null`), entities.RunCompleted, `{"message":"no answer within 1s","code":"no_answer"}`)
}

// TestTooLargeAnswersOfStepsFailAtOnce: another attempt would answer as much. The text fits, but not with its quotes.
func TestTooLargeAnswersOfStepsFailAtOnce(t *testing.T) {
	t.Parallel()
	workflow := completeWith("step_failed", "pay", object{"type": "runStep", "id": "pay"})
	var attempts atomic.Int32
	d := startServer(t, serve(t, withStep(workflow, func(c *functionCall) {
		attempts.Add(1)
		c.replyAs(http.StatusOK, `"`+strings.Repeat("x", contract.MaxAnswer-1)+`"`)
	})))
	d.wantEnd(t, d.startRun(t, `null`), entities.RunCompleted,
		`{"message":"the answer is larger than 16 MiB: answer with less, such as where the rest is","code":"answer_too_large"}`)
	if n := attempts.Load(); n != 1 {
		t.Errorf("it was attempted %d times", n)
	}
}

// TestEndOfARunCancelsItsCalls: a function's connection is closed when its run is cancelled or meets its deadline.
func TestEndOfARunCancelsItsCalls(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		typ     string // of the call that hangs
		change  func(*eventlog.Request)
		end     func(t *testing.T, d *server, id entities.RunID)
		status  entities.RunStatus
		payload string // of the event that ends the run
	}{
		"cancel of an invocation": {typ: contract.TypeWorkflow, end: cancelRun, status: entities.RunCancelled},
		"cancel of a step":        {typ: contract.TypeStep, end: cancelRun, status: entities.RunCancelled},
		"deadline": {typ: contract.TypeStep, status: entities.RunFailed, change: func(r *eventlog.Request) {
			at := time.Now().Add(time.Hour)
			r.Data.Deadline = &at
		}, end: func(t *testing.T, d *server, _ entities.RunID) {
			t.Helper()
			d.passDeadlines(t)
		}, payload: `{"message":"the run did not end in time","code":"timeout"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, closed := make(chan struct{}, 10), make(chan struct{}, 10)
			d := newServer(t, testdb.New(t))
			d.runs.lateAnswers = 100 * time.Millisecond
			d.serveWith(t, serve(t, func(c *functionCall) {
				if c.Type != tt.typ {
					c.reply(object{"type": "runStep", "id": "pay"})
					return
				}
				called <- struct{}{}
				waitForHangUp(c)
				closed <- struct{}{}
			}))
			if tt.change == nil {
				tt.change = func(*eventlog.Request) {}
			}
			id := d.startRun(t, `null`, tt.change)
			testdb.Receive(t, "a call", called)
			tt.end(t, d, id)
			testdb.Receive(t, "the end of the call", closed)
			d.wantEnd(t, id, tt.status, tt.payload)
			d.waitForEmptyQueue(t)
		})
	}
}

func cancelRun(t *testing.T, d *server, id entities.RunID) {
	t.Helper()
	if _, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven,
	}); err != nil {
		t.Fatal(err)
	}
}

// waitForEmptyQueue waits until the queue is empty.
func (d *server) waitForEmptyQueue(t *testing.T) {
	t.Helper()
	testdb.Eventually(t, "the queue is empty", func() bool {
		list, _, err := d.Messages(t.Context(), project, queue.Filter{}, pg.Page{Limit: 10})
		return err == nil && len(list) == 0
	})
}

// TestStaleInvocationChangesNothing: its lease expired, and another invocation has started.
func TestStaleInvocationChangesNothing(t *testing.T) {
	t.Parallel()
	first, second := make(chan contract.Call, 1), make(chan contract.Call, 1)
	finish := make(chan struct{})
	f := serve(t, func(c *functionCall) {
		if c.Attempt == 1 {
			first <- c.Call
			<-finish // it ignores that its caller has hung up
			c.reply(object{"type": "complete", "output": "stale"})
			return
		}
		second <- c.Call
		<-finish
		c.reply(object{"type": "complete", "output": "fresh"})
	})
	d := newServer(t, testdb.New(t))
	d.serveWith(t, f)
	id := d.startRun(t, `null`)
	stale := testdb.Receive(t, "the first call", first)
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE run_id = $1`, id)
	d.WakeTimer(nil)
	fresh := testdb.Receive(t, "the second call", second)
	body := []byte(`{"commands":[{"type":"setAttributes","attributes":{"a":"b"}}]}`)
	if _, err := d.runs.Command(t.Context(), callOf(id, stale.Invocation), body); !errors.Is(err, message.ErrStale) {
		t.Errorf("command of the stale invocation: got error %v, want ErrStale", err)
	}
	if n := d.countEvents(t, id, "attr_set"); n != 0 {
		t.Errorf("it wrote %d events", n)
	}
	for _, handle := range []string{"", "rh_other"} {
		if _, err := d.runs.Command(t.Context(), callOf(id, handle), body); !errors.Is(err, message.ErrStale) {
			t.Errorf("command of invocation %q: got error %v, want ErrStale", handle, err)
		}
	}
	if _, err := d.runs.Command(t.Context(), callOf(id, fresh.Invocation), body); err != nil {
		t.Errorf("command of the fresh invocation: %v", err)
	}
	close(finish)
	d.wantEnd(t, id, entities.RunCompleted, `"fresh"`)
	if _, err := d.runs.Command(t.Context(), callOf(id, fresh.Invocation), body); !errors.Is(err, entities.ErrRunEnded) {
		t.Errorf("command after the end: got error %v, want ErrRunEnded", err)
	}
	if _, err := d.runs.Command(t.Context(), token.Call{Project: "stranger", RunID: id, Invocation: fresh.Invocation}, body); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("command of another project: got error %v, want ErrRunNotFound", err)
	}
}

// TestRefusedAnswerWritesNothingAndIsVisible: the run is invoked again later, and its message has the reason. Package
// contract tests what answers are refused.
func TestRefusedAnswerWritesNothingAndIsVisible(t *testing.T) {
	t.Parallel()
	fine := object{"type": "setAttributes", "attributes": object{"a": "b"}}
	tests := map[string]struct {
		answer any
		reason string
	}{
		"no command":          {object{"commands": []any{fine, object{"type": "dance"}}}, `command 1: unknown command type "dance"`},
		"something illegal":   {object{"commands": []any{fine, object{"type": "closeHook", "id": "none"}}}, "command 1: hook none not found"},
		"nothing to wait for": {object{"commands": []any{fine}}, "wait for nothing"},
		"nothing to wait for, all of it cached": {object{"commands": []any{
			object{"type": "setStore", "id": "s", "values": object{"a": 1}},
		}}, "wait for nothing"},
		"another name": {object{"commands": []any{
			object{"type": "runStep", "id": "x", "name": "one"}, object{"type": "runStep", "id": "x", "name": "two"},
		}}, "cannot become"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startServer(t, serve(t, func(c *functionCall) { _ = json.NewEncoder(c.w).Encode(tt.answer) }))
			id := d.startRun(t, `null`)
			testdb.Eventually(t, "the message has the failure", func() bool {
				list, _, err := d.Messages(t.Context(), project, queue.Filter{State: queue.StateWaiting}, pg.Page{Limit: 10})
				return err == nil && len(list) == 1 && strings.Contains(list[0].LastError, tt.reason)
			})
			if got, want := d.events(t, id), []string{"run_created", "run_started"}; !slices.Equal(got, want) {
				t.Errorf("the log has %q, want %q", got, want)
			}
		})
	}
}

// TestRepeatedCommandsAreAppliedOnce: a function may repeat all its commands in each answer.
func TestRepeatedCommandsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	always := []object{
		{"type": "recordStep", "id": "a", "output": 1},
		{"type": "runStep", "id": "b"},
		{"type": "wait", "id": "c", "for": "20ms"},
		{"type": "openHook", "id": "d"},
		{"type": "setAttributes", "id": "e", "attributes": object{"k": "v"}},
		{"type": "startChild", "id": "f", "workflow": "child"},
		{"type": "closeHook", "id": "d"},
	}
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
		case c.Run.Workflow == "child":
			c.reply(object{"type": "complete"})
		case c.has("step_completed", "b") && c.has("wait_completed", "c") && c.has("step_completed", "f"):
			c.reply(append(always, object{"type": "complete"})...)
		default:
			c.reply(always...)
		}
	}))
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	events := d.events(t, id)
	slices.Sort(events)
	if got := slices.Compact(slices.Clone(events)); len(got) != len(events) {
		t.Errorf("some event is there twice: %q", events)
	}
	if want := 2 + 2 + 3 + 2 + 2 + 1 + 2 + 1; len(events) != want {
		t.Errorf("%d events, want %d: %q", len(events), want, events)
	}
	d.waitForEmptyQueue(t)
}

// TestInvocationsOfARunNeverOverlap when many hooks are resumed at once, and the function sees every payload.
func TestInvocationsOfARunNeverOverlap(t *testing.T) {
	t.Parallel()
	const racers = 20
	var under, most atomic.Int32
	f := serve(t, func(c *functionCall) {
		defer under.Add(-1)
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		seen := 0
		for _, e := range c.Events {
			if strings.Contains(string(e), `"hook_received"`) {
				seen++
			}
		}
		if seen < racers {
			c.reply(object{"type": "openHook", "id": "h"})
			return
		}
		c.reply(object{"type": "complete", "output": seen})
	})
	d := startServer(t, f)
	other := newServer(t, d.pool.Config().ConnString())
	other.worker(t, other.works)
	id := d.startRun(t, `null`)
	d.waitForEvent(t, id, "hook_created h")
	var all sync.WaitGroup
	for range racers {
		all.Go(func() {
			if _, err := d.log.Append(context.Background(), project, eventlog.Request{
				RunID: id, Type: entities.EventHookReceived, CorrelationID: "h", SpecVersion: entities.SpecDriven,
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	d.wantEnd(t, id, entities.RunCompleted, fmt.Sprint(racers))
	if most.Load() != 1 {
		t.Errorf("up to %d invocations at once, want 1", most.Load())
	}
}
