package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/flow/registry"
)

// fork starts a run that keeps the first events of a log.
func (d *server) fork(t *testing.T, kept []entities.Event) (entities.RunID, error) {
	t.Helper()
	first := kept[0]
	r := eventlog.Request{
		RunID: entities.NewRunID(time.Now()), Type: entities.EventRunCreated, SpecVersion: first.SpecVersion,
		Payload: first.Payload, Data: first.Data,
	}
	r, err := d.log.Fork(t.Context(), project, r, slices.Clone(kept))
	if err != nil {
		return "", err
	}
	run, _, err := d.log.Start(t.Context(), project, r)
	return run.ID, err
}

// executions counts the executions of steps, by run and step.
type executions struct {
	mu    sync.Mutex
	count map[string]int
}

func (e *executions) add(run entities.RunID, step entities.StepID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == nil {
		e.count = map[string]int{}
	}
	e.count[string(run)+" "+string(step)]++
}

func (e *executions) of(run entities.RunID, step string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[string(run)+" "+step]
}

// forkOrder is a function of the contract with a step of its own, steps that run together, a wait, a hook and a child.
func forkOrder(executed *executions) func(*functionCall) {
	return func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			executed.add(c.Run.ID, c.Step.ID)
			_, _ = fmt.Fprintf(c.w, `{"%s":%s}`, c.Step.Name, c.Step.Input)
		case c.Run.Workflow == "child":
			c.reply(map[string]any{"type": "complete", "output": "grown up"})
		case !c.has("step_completed", "pack"):
			executed.add(c.Run.ID, "pack")
			c.reply(
				map[string]any{"type": "setAttributes", "id": "stage", "attributes": map[string]any{"stage": "paying"}},
				map[string]any{"type": "recordStep", "id": "pack", "output": "packed", "store": map[string]any{"n": 1}},
				map[string]any{"type": "openHook", "id": "approval", "token": "T"},
				map[string]any{"type": "runStep", "id": "charge", "input": c.Run.Input},
				map[string]any{"type": "runStep", "id": "notify", "input": 1},
			)
		case !c.has("step_completed", "charge") || !c.has("step_completed", "notify"):
			c.reply(map[string]any{"type": "openHook", "id": "approval", "token": "T"},
				map[string]any{"type": "runStep", "id": "charge", "input": c.Run.Input},
				map[string]any{"type": "runStep", "id": "notify", "input": 1})
		case !c.has("wait_completed", "pause") || !c.has("hook_received", "approval") ||
			!c.has("step_completed", "kid") || !c.has("step_completed", "ship"):
			c.reply(
				map[string]any{"type": "wait", "id": "pause", "for": "20ms"},
				map[string]any{"type": "startChild", "id": "kid", "workflow": "child"},
				map[string]any{"type": "runStep", "id": "ship", "input": c.Run.Store["n"]},
			)
		default:
			c.reply(map[string]any{"type": "complete", "output": map[string]any{
				"charge": c.log["step_completed charge"], "ship": c.log["step_completed ship"],
				"kid": c.log["step_completed kid"], "approval": c.log["hook_received approval"],
				"stage": c.Run.Attributes["stage"],
			}})
		}
	}
}

// approve sends the payload that a run's hook waits for, unless the log has one.
func (d *server) approve(t *testing.T, id entities.RunID) {
	t.Helper()
	d.waitForEvent(t, id, "hook_created approval")
	if slices.Contains(d.events(t, id), "hook_received approval") {
		return
	}
	_, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventHookReceived, CorrelationID: "approval", SpecVersion: entities.SpecDriven,
		Payload: []byte(`"yes"`),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantForks forks a run at each position. Each fork must end as the run did, and execute no step that the events have
// finished. A child run that is open in them is started again, for the fork.
func (d *server) wantForks(t *testing.T, id entities.RunID, executed *executions, drive func(entities.RunID)) {
	t.Helper()
	status, output := d.waitForEnd(t, id)
	log := d.logOf(t, id)
	for at := 1; at < len(log); at++ {
		kept := log[:at]
		fork, err := d.fork(t, kept)
		if want := refusalAt(kept); want != "" {
			if refused := (*entities.ForkRefusedError)(nil); !errors.As(err, &refused) || refused.Reason != want {
				t.Errorf("at %d: got error %v, want the reason %s", at, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
		drive(fork)
		d.wantEnd(t, fork, status, output)
		for i, e := range kept {
			if e.Type == entities.EventStepCompleted && executed.of(fork, e.CorrelationID) > 0 {
				t.Errorf("at %d: step %s was executed again, which event %d had finished", at, e.CorrelationID, i+1)
			}
		}
		for i, e := range d.logOf(t, fork)[1:at] {
			want := kept[i+1]
			if own := childOf(e) != childOf(want); own != isOpenChild(kept, want) {
				t.Errorf("at %d: step %s has a child of its own %t", at, e.CorrelationID, own)
			}
			if e.Type != want.Type || !e.CreatedAt.Equal(want.CreatedAt) || string(e.Payload) != string(want.Payload) {
				t.Errorf("at %d: event %d is %s %s, want %s", at, i+2, e.Type, e.Payload, want.Type)
			}
		}
	}
}

func childOf(e entities.Event) entities.RunID {
	if e.Data.Step == nil {
		return ""
	}
	return e.Data.Step.ChildID
}

// isOpenChild reports whether an event has created a step that waits for a child run at the end of the log.
func isOpenChild(log []entities.Event, created entities.Event) bool {
	return created.Type == entities.EventStepCreated && childOf(created) != "" &&
		!slices.ContainsFunc(log, func(e entities.Event) bool {
			return e.CorrelationID == created.CorrelationID && e.Type != entities.EventStepCreated
		})
}

// refusalAt returns why no run can begin with the events; empty if one can.
func refusalAt(log []entities.Event) string {
	open := map[string]string{}
	for _, e := range log {
		switch e.Type {
		case entities.EventStepCreated:
			if e.Data.Step == nil {
				open[e.CorrelationID] = entities.ForkWithin
			}
		case entities.EventStepCompleted, entities.EventStepFailed:
			delete(open, e.CorrelationID)
		default:
		}
	}
	for _, e := range log {
		if reason := open[e.CorrelationID]; reason != "" {
			return reason
		}
	}
	return ""
}

// TestForksOfFunctionsEndAsTheOriginal at each position of the log.
func TestForksOfFunctionsEndAsTheOriginal(t *testing.T) {
	t.Parallel()
	var executed executions
	d := startServer(t, serve(t, forkOrder(&executed)))
	id := d.startRun(t, `{"total":42}`)
	d.approve(t, id)
	d.wantForks(t, id, &executed, func(fork entities.RunID) { d.approve(t, fork) })
}

// TestForksOfFlowsEndAsTheOriginal at each position of the log.
func TestForksOfFlowsEndAsTheOriginal(t *testing.T) {
	t.Parallel()
	var executed executions
	d := startServer(t, serve(t, func(c *functionCall) {
		executed.add(c.Run.ID, c.Step.ID)
		shop(c)
	}))
	flows := registry.New(d.pool, time.Now)
	var version string
	for _, document := range []string{giftFlow, orderFlow} {
		v, err := flows.Put(t.Context(), project, []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		version = v.DeploymentID
	}
	id := d.startRun(t, `{"id":"7","amount":200}`, func(r *eventlog.Request) { r.Data.DeploymentID = version })
	d.wantForks(t, id, &executed, func(entities.RunID) {})
}

// TestForkExecutesTheFailedStepAnew: a step that had used all of its attempts and its time gets both again, and what
// another step has done meanwhile is kept.
func TestForkExecutesTheFailedStepAnew(t *testing.T) {
	t.Parallel()
	var executed executions
	mended := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			executed.add(c.Run.ID, c.Step.ID)
			select {
			case <-mended:
			default:
				if c.Step.Name == "charge" {
					c.w.WriteHeader(500)
					return
				}
			}
			_, _ = fmt.Fprintf(c.w, `%q`, c.Step.Name)
		case c.has("step_failed", "charge") && c.has("step_completed", "pack"):
			c.reply(map[string]any{"type": "fail", "error": map[string]any{"message": "declined"}})
		case c.has("step_completed", "charge") && c.has("step_completed", "pack"):
			c.reply(map[string]any{"type": "complete", "output": "paid"})
		default:
			retry := map[string]any{"maxAttempts": 2, "backoff": "300ms"}
			c.reply(map[string]any{"type": "runStep", "id": "charge", "retry": retry, "timeout": "1h"},
				map[string]any{"type": "runStep", "id": "pack"})
		}
	}))
	id := d.startRun(t, `{}`)
	if status, text := d.waitForEnd(t, id); status != entities.RunFailed {
		t.Fatalf("the run is %s with %s", status, text)
	}
	close(mended)
	log := d.logOf(t, id)
	n, err := eventlog.BeforeFailure(log)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := d.fork(t, log[:n])
	if err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, fork, entities.RunCompleted, `"paid"`)
	if n, m := executed.of(fork, "charge"), executed.of(fork, "pack"); n != 1 || m != 0 {
		t.Errorf("the fork has executed charge %d times and pack %d times, want once and never", n, m)
	}
	for _, e := range d.logOf(t, fork) {
		if e.Type == entities.EventStepCreated && e.CorrelationID == "charge" &&
			e.Data.Step.Deadline.Before(time.Now().Add(59*time.Minute)) {
			t.Errorf("the deadline of the step is %s, want an hour from the fork", e.Data.Step.Deadline)
		}
	}
}
