// Package stepwelltest runs workflows in tests: without a server, a database or a network, and in virtual time.
//
//	env := stepwelltest.New(t, Order.Bind(order))
//	stepwelltest.Stub(env, Charge, func(context.Context, Purchase) (Payment, error) { return Payment{Ref: "r1"}, nil })
//	run := stepwelltest.Start(env, Order, Purchase{ID: "7"})
//	env.RunUntilDone() // days pass in an instant
//	receipt, err := run.Result()
//
// Each invocation replays its workflow from the start. Each call of a workflow is repeated 40 times with the same log,
// and once more with what the first one has written during the call. A workflow that is not deterministic, even one
// that ranges over a map with two keys, therefore fails in its first test; but code that depends on the real time may
// need longer to differ, which vet finds. Steps are not repeated: inline steps execute once, one at a time, in the
// order in which the workflow asked for them.
//
// [EveryCrash] repeats a test with a crash at each place where there can be one, and [EveryOrder] with each order in
// which results and messages can come. [Replay] replays runs of a server.
package stepwelltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// Env is an environment for workflows: a server in memory with one app.
type Env struct {
	tb     testing.TB
	server *memserver.Server
	app    *stepwell.App
	caller *caller
}

// New returns an environment whose app has the given workflows and steps. Its clock starts at the beginning of 2026.
func New(tb testing.TB, definitions ...stepwell.Definition) *Env {
	tb.Helper()
	s := memserver.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := &caller{tb: tb, server: s, faults: &faults{}, effects: map[string]effect{}, spied: map[string]bool{},
		repeats: mostRepeats}
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "test", Unsigned: "a test in one process", Logger: slog.New(slog.DiscardHandler), Now: s.Now,
		Server: "http://stepwell.test", HTTP: &http.Client{Transport: requests{}}, StrictInputs: true,
	})
	e := &Env{tb, s, app, c}
	s.Function = c
	e.Register(definitions...)
	return e
}

// Register adds workflows and steps. It fails the test if they cannot work.
func (e *Env) Register(definitions ...stepwell.Definition) {
	e.tb.Helper()
	e.app.Register(definitions...)
	e.serve()
}

func (e *Env) serve() {
	e.tb.Helper()
	handler, err := e.app.Handler()
	if err != nil {
		e.tb.Fatal(err)
	}
	e.caller.app = handler
}

// Now returns the virtual time.
func (e *Env) Now() time.Time { return e.server.Now() }

// RunUntilIdle does everything that can be done without letting time pass.
func (e *Env) RunUntilIdle() { e.server.RunUntilIdle() }

// RunUntilDone lets time pass until nothing happens by itself any more: runs have ended, or wait for payloads.
func (e *Env) RunUntilDone() { e.server.RunUntilDone() }

// Advance lets time pass.
func (e *Env) Advance(d time.Duration) { e.server.Advance(d) }

// Resume sends a payload to the hook with the token. It fails the test if there is none.
func (e *Env) Resume(token string, payload any) {
	e.tb.Helper()
	if err := e.server.Resume(token, e.encode(payload)); err != nil {
		e.tb.Fatal(err)
	}
}

// ResumeWhenOpen sends a payload to the hook with the token as soon as it is open. [EveryOrder] tries each moment from
// then on.
func (e *Env) ResumeWhenOpen(token string, payload any) {
	e.tb.Helper()
	e.server.ResumeWhenOpen(token, e.encode(payload))
}

func (e *Env) encode(payload any) json.RawMessage {
	e.tb.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		e.tb.Fatal(err)
	}
	return data
}

// Run is a run of a workflow with output O.
type Run[O any] struct{ run *memserver.Run }

// Start starts a run.
func Start[I, O any](e *Env, workflow *stepwell.Workflow[I, O], input I) *Run[O] {
	e.tb.Helper()
	run := e.server.Start(workflow.Name(), e.encode(input))
	for _, inbox := range workflow.Inboxes() {
		e.server.OpenInbox(run, inbox)
	}
	return &Run[O]{run}
}

// ErrRunning is the error of a run that has not ended.
var ErrRunning = errors.New("the run has not ended")

// Result returns the output of the run, or its error, which is that of [stepwell.Run.Wait]. If it continues as others,
// that is the output of the last of these; see [Run.Continued]. If the run has not ended,
// the error is [ErrRunning], with the reason why its last invocation failed.
func (r *Run[O]) Result() (output O, err error) {
	last := r.run.Last()
	switch last.Status {
	case "completed":
		err = json.Unmarshal(last.Output, &output)
		return output, err
	case "running":
		return output, fmt.Errorf("%w: %s", ErrRunning, last.WaitsFor())
	case "cancelled":
		return output, &stepwell.RunCancelledError{RunID: last.ID}
	default:
		failed := &stepwell.RunFailedError{RunID: last.ID}
		if json.Unmarshal(last.Output, &failed.RunFailure) != nil {
			failed.Message = string(last.Output)
		}
		return output, failed
	}
}

// Continued returns the last one of the runs as which the run has continued, or the run itself.
func (r *Run[O]) Continued() *Run[O] { return &Run[O]{r.run.Last()} }

// Invocations returns how often the workflow was called.
func (r *Run[O]) Invocations() int { return r.run.Invocations }

// ID returns the ID of the run.
func (r *Run[O]) ID() string { return r.run.ID }

// Log returns the run with its log, which [stepwell.App.Replay] replays with other code.
func (r *Run[O]) Log() stepwell.RunLog {
	l := stepwell.RunLog{Run: encode(map[string]string{
		"id": r.run.ID, "workflow": r.run.Workflow, "status": r.run.Status,
	})}
	for _, e := range r.run.Log {
		l.Events = append(l.Events, stepwell.Event{
			RunID: e.RunID, Seq: e.Seq, Type: e.Type, CorrelationID: e.ID, CreatedAt: e.At, Data: encode(e.Data),
			Payload: e.Payload,
		})
	}
	return l
}
