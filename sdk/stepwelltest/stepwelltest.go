// Package stepwelltest runs workflows in tests: without a server, a database or a network, and in virtual time.
//
//	env := stepwelltest.New(t, Order.Bind(order), Charge.Bind(charge))
//	run := stepwelltest.Start(env, Order, Purchase{ID: "7"})
//	env.RunUntilDone() // days pass in an instant
//	receipt, err := run.Result()
//
// Each invocation replays its workflow from the start, and each call of a workflow is made twice with the same log. A
// workflow that is not deterministic therefore fails in its first test.
package stepwelltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// Env is an environment for workflows: a server in memory with one app.
type Env struct {
	tb     testing.TB
	server *memserver.Server
}

// New returns an environment whose app has the given workflows and steps. Its clock starts at the beginning of 2026.
func New(tb testing.TB, definitions ...stepwell.Definition) *Env {
	tb.Helper()
	s := memserver.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	app := stepwell.NewApp("test", stepwell.Logger(slog.New(slog.DiscardHandler)), stepwell.Clock(s.Now))
	app.Register(definitions...)
	handler, err := app.Handler(stepwell.Unsigned("a test in one process"))
	if err != nil {
		tb.Fatal(err)
	}
	s.Function, s.Doubled = handler, true
	return &Env{tb, s}
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
	data, err := json.Marshal(payload)
	if err == nil {
		err = e.server.Resume(token, data)
	}
	if err != nil {
		e.tb.Fatal(err)
	}
}

// Run is a run of a workflow with output O.
type Run[O any] struct{ run *memserver.Run }

// Start starts a run.
func Start[I, O any](e *Env, workflow *stepwell.Workflow[I, O], input I) *Run[O] {
	e.tb.Helper()
	data, err := json.Marshal(input)
	if err != nil {
		e.tb.Fatal(err)
	}
	return &Run[O]{e.server.Start(workflow.Name(), data)}
}

// ErrRunning is the error of a run that has not ended.
var ErrRunning = errors.New("the run has not ended")

// Result returns the output of the run, or its error. If the run has not ended, the error is [ErrRunning], with the
// reason why its last invocation failed.
func (r *Run[O]) Result() (output O, err error) {
	switch r.run.Status {
	case "completed":
		err = json.Unmarshal(r.run.Output, &output)
		return output, err
	case "failed":
		return output, fmt.Errorf("the run failed: %s", r.run.Output)
	default:
		return output, fmt.Errorf("%w: %s", ErrRunning, r.run.LastError)
	}
}

// Invocations returns how often the workflow was called.
func (r *Run[O]) Invocations() int { return r.run.Invocations }
