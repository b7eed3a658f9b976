package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// Trial runs a program without a server: the results of its steps are given, and time is skipped.
type Trial struct {
	Input json.RawMessage
	// Attributes and Key are those of the run.
	Attributes map[string]string
	Key        string
	// Results are those of calls and children, by the ID of the step; of a step that is undone, ID~undo. A step without
	// one completes with null.
	Results map[string]Result
	// Signals are the data of signals, by their names. They come as soon as a step waits for them, or SignalAfter later.
	Signals     map[string]json.RawMessage
	SignalAfter map[string]time.Duration
	// Payloads are what hooks receive, and the votes of approvals, by the ID of the step.
	Payloads map[string][]json.RawMessage
}

// Result is the result of a step: an output, or an error.
type Result struct {
	Output json.RawMessage
	Error  *contract.Failure
	// After is how long the step takes. If that is longer than its timeout, the step fails with [contract.CodeTimeout].
	After time.Duration
}

// Outcome is what has become of a trial.
type Outcome struct {
	// Status is completed, failed or cancelled.
	Status entities.RunStatus
	Output json.RawMessage
	Error  *contract.Failure
	// Events is the log without the attempts of steps.
	Events []Event

	decisions []int // how many events there were at each decision
}

// trialStart is when each trial begins.
var trialStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrStuck reports a run that waits forever, such as for a signal that does not come. The outcome has no status then.
var ErrStuck = errors.New("nothing is under way, and the run has not ended")

// Run runs the program until its run has ended, or nothing more can happen.
func (t Trial) Run(p *Program) (Outcome, error) {
	r := trialRun{Trial: t, now: trialStart}
	r.run = contract.Run{ID: "wrun_trial", Workflow: p.Name, CreatedAt: trialStart, Attributes: t.Attributes, Key: t.Key}
	r.append(entities.EventRunCreated, "", orNull(t.Input))
	r.append(entities.EventRunStarted, "", nil)
	state, seen := p.Begin(), 0
	for r.outcome.Status == "" {
		err := state.Apply(r.run, r.events[seen:])
		if err != nil {
			return r.outcome, err
		}
		seen = len(r.events)
		r.outcome.decisions = append(r.outcome.decisions, seen)
		commands, err := state.Next(context.Background())
		if err != nil {
			return r.outcome, err
		}
		for _, command := range commands {
			if err := r.carryOut(mustJSON(command)); err != nil {
				return r.outcome, err
			}
		}
		if r.outcome.Status == "" && !r.happen() {
			r.outcome.Events = r.events
			return r.outcome, ErrStuck
		}
	}
	r.outcome.Events = r.events
	return r.outcome, nil
}

// trialRun is a trial under way.
type trialRun struct {
	Trial

	run     contract.Run
	now     time.Time
	events  []Event
	outcome Outcome
	pending []pendingResult
}

// pendingResult is something that is going to happen.
type pendingResult struct {
	id    string
	at    time.Time // zero for at once
	event entities.EventType
	of    json.RawMessage
}

func (r *trialRun) append(typ entities.EventType, id string, payload json.RawMessage) {
	r.events = append(r.events, Event{
		Seq: int64(len(r.events) + 1), Type: typ, CorrelationID: id, CreatedAt: r.now, Payload: payload,
	})
}

// anyCommand has the fields of all commands that a trial reads.
type anyCommand struct {
	Type    string            `json:"type"`
	ID      string            `json:"id"`
	Input   json.RawMessage   `json:"input"`
	Output  json.RawMessage   `json:"output"`
	Error   *contract.Failure `json:"error"`
	Skipped string            `json:"skipped"`
	For     string            `json:"for"`
	Until   time.Time         `json:"until"`
	Timeout string            `json:"timeout"`
	Grace   string            `json:"grace"`
	Signal  json.RawMessage   `json:"signal"`
	// HTTP is the request of a step that is one.
	HTTP *contract.HTTPRequest `json:"http"`
}

// input returns what the log has as the input of a step: of an HTTP step, its request as the server makes it.
func (c *anyCommand) input() json.RawMessage {
	if c.HTTP == nil {
		return c.Input
	}
	_ = c.HTTP.Complete() // one that the server refuses is shown as it is
	return mustJSON(c.HTTP)
}

// carryOut does what the server does with a command.
func (r *trialRun) carryOut(text json.RawMessage) error {
	var c anyCommand
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("the command %s: %w", text, err)
	}
	switch c.Type {
	case "runStep", "startChild", "startRun":
		r.append(entities.EventStepCreated, c.ID, c.input())
		r.result(c)
	case "recordStep", "emit":
		r.append(entities.EventStepCreated, c.ID, nil)
		r.record(c)
	case "wait":
		r.append(entities.EventWaitCreated, c.ID, nil)
		until := c.Until
		if c.For != "" {
			d, err := time.ParseDuration(c.For)
			if err != nil {
				return fmt.Errorf("the wait %s: %w", c.ID, err)
			}
			until = r.now.Add(d)
		}
		r.later(c.ID, until, pendingResult{event: entities.EventWaitCompleted})
	case "respond": // nobody waits for it here
	case "openHook":
		return r.openHook(c)
	case "closeHook":
		r.end(entities.EventHookDisposed, c.ID, nil)
	case "cancelWait":
		r.end(entities.EventWaitCancelled, c.ID, nil)
	case "cancelStep":
		if c.Grace != "" { // a child, which ends by itself
			r.pending = slices.DeleteFunc(r.pending, func(p pendingResult) bool { return p.id == c.ID })
			r.later(c.ID, time.Time{}, pendingResult{
				event: entities.EventStepFailed, of: contract.Payload("the child was cancelled", "child_cancelled"),
			})
			return nil
		}
		r.end(entities.EventStepFailed, c.ID, contract.Payload("cancelled by the workflow", contract.CodeCancelled))
	case "complete":
		r.append(entities.EventRunCompleted, "", c.Output)
		r.outcome.Status, r.outcome.Output = entities.RunCompleted, c.Output
	case "fail":
		r.append(entities.EventRunFailed, "", c.Error.Text())
		r.outcome.Status, r.outcome.Error = entities.RunFailed, c.Error
	default:
		return fmt.Errorf("the command %q is not known here", c.Type)
	}
	return nil
}

// openHook opens a hook, which receives what the trial has for it.
func (r *trialRun) openHook(c anyCommand) error {
	r.append(entities.EventHookCreated, c.ID, nil)
	for _, payload := range r.Payloads[c.ID] {
		r.later(c.ID, time.Time{}, pendingResult{event: entities.EventHookReceived, of: payload})
	}
	var signal hookSignal
	if c.Signal != nil && json.Unmarshal(c.Signal, &signal) != nil {
		return fmt.Errorf("the signal of %s is not an object", c.ID)
	}
	if data, ok := r.Signals[signal.Name]; ok {
		payload := mustJSON(map[string]any{"signal": signal.Name, "data": data})
		r.later(c.ID, r.in(r.SignalAfter[signal.Name]), pendingResult{event: entities.EventHookReceived, of: payload})
	}
	return nil
}

func (r *trialRun) record(c anyCommand) {
	if c.Error != nil {
		r.append(entities.EventStepFailed, c.ID, c.Error.Text())
		return
	}
	r.append(entities.EventStepCompleted, c.ID, orNull(c.Output))
	r.events[len(r.events)-1].Data.Skipped = c.Skipped
}

// result has a step end as the trial says, or at its timeout.
func (r *trialRun) result(c anyCommand) {
	given := r.Results[c.ID]
	end := pendingResult{event: entities.EventStepCompleted, of: orNull(given.Output)}
	if given.Error != nil {
		end = pendingResult{event: entities.EventStepFailed, of: given.Error.Text()}
	}
	if limit, err := time.ParseDuration(c.Timeout); err == nil && limit < given.After {
		given.After = limit
		end = pendingResult{
			event: entities.EventStepFailed, of: contract.Payload("it took longer than "+c.Timeout, contract.CodeTimeout),
		}
	}
	r.later(c.ID, r.in(given.After), end)
}

// in returns the time after a while; zero for at once.
func (r *trialRun) in(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return r.now.Add(d)
}

func (r *trialRun) later(id string, at time.Time, result pendingResult) {
	result.id, result.at = id, at
	r.pending = append(r.pending, result)
}

// end ends something before it has a result.
func (r *trialRun) end(typ entities.EventType, id string, payload json.RawMessage) {
	r.pending = slices.DeleteFunc(r.pending, func(p pendingResult) bool { return p.id == id })
	r.append(typ, id, payload)
}

// happen lets the next thing happen: the earliest, and of several the one that has begun first.
func (r *trialRun) happen() bool {
	if len(r.pending) == 0 {
		return false
	}
	next := 0
	for i, p := range r.pending {
		if p.at.Before(r.pending[next].at) {
			next = i
		}
	}
	p := r.pending[next]
	r.pending = slices.Delete(r.pending, next, next+1)
	r.now = r.now.Add(time.Millisecond)
	if p.at.After(r.now) {
		r.now = p.at
	}
	r.append(p.event, p.id, p.of)
	return true
}

// Steps returns what a trial did, in one line for each event that ends something: "charge completed".
func (o Outcome) Steps() (lines []string) {
	for _, e := range o.Events {
		kind, end, _ := strings.Cut(string(e.Type), "_")
		switch {
		case e.Data.Skipped != "":
			end = "skipped"
		case end == "created" || end == "started" || kind == "run":
			continue
		}
		lines = append(lines, e.CorrelationID+" "+end)
	}
	return lines
}
