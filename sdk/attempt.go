package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// attempt makes one attempt of a step: within its time, and inside the interceptors. A panic is an error. Code that
// goes on after its time is left behind, as the server leaves a call that does not answer; but code that was cancelled
// is waited for, because what is done next may depend on what it has done.
func attempt(
	ctx context.Context, s stepContext, limit time.Duration, fn func(context.Context) (json.RawMessage, error),
) (json.RawMessage, error) {
	ctx = context.WithValue(ctx, stepKey{}, s)
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrAttemptTimeout)
		defer cancel()
	}
	ended := make(chan outcome, 1)
	go func() {
		defer close(ended) // also after Goexit
		ended <- s.call(ctx, fn)
	}()
	var late <-chan time.Time
	select {
	case o, ok := <-ended:
		return o.result(ok)
	case <-ctx.Done():
		if context.Cause(ctx) == ErrAttemptTimeout { //nolint:errorlint // it is this one itself
			late = time.After(lastWord)
		}
	}
	select {
	case o, ok := <-ended:
		return o.result(ok)
	case <-late:
		return nil, ErrAttemptTimeout
	}
}

// lastWord is how long code may go on after the time of its attempt, to say what it has done.
const lastWord = time.Second / 2

// outcome is what came of an attempt.
type outcome struct {
	output json.RawMessage
	err    error
}

// result returns it. If there is none, because the code has ended its goroutine, it ends the calling one too.
func (o outcome) result(ok bool) (json.RawMessage, error) {
	if !ok {
		runtime.Goexit()
	}
	return o.output, o.err
}

// call calls the step's function inside the interceptors.
func (s stepContext) call(ctx context.Context, fn func(context.Context) (json.RawMessage, error)) (o outcome) {
	defer recoverAs(&o.err) // also of interceptors
	o.err = around(ctx, s.StepInfo, s.app.serving.aroundSteps, func(ctx context.Context) (err error) {
		defer recoverAs(&err)
		o.output, err = fn(ctx)
		return err
	})
	if o.err == nil {
		o.err = checkSize(s.app.codec, "the output", len(o.output))
	}
	return o
}

// recoverAs makes a panic an error. It is to be deferred itself.
func recoverAs(err *error) {
	if p := recover(); p != nil {
		*err = newPanicError(p)
	}
}

// inlineStep executes the attempts of an inline operation.
type inlineStep struct {
	exec    *execution
	options stepOptions
	info    StepInfo
	known   map[string]json.RawMessage // the store of the run when the step began
	input   int                        // its size, which is recorded with the result
	// pauses is how long attempts may be apart in this call, all in all.
	pauses time.Duration
	// after is when the first attempt may begin.
	after time.Time
}

// lastPart is the part of a call that is left for its answer, as a fraction.
const lastPart = 20

// limit returns how long an attempt may take: no longer than the call.
func (s *inlineStep) limit() time.Duration {
	left := max(s.exec.left()-invocationTime/lastPart, time.Second)
	if s.options.attemptTimeout > 0 {
		return min(s.options.attemptTimeout, left)
	}
	return left
}

// left returns how much time is left of the call.
func (x *execution) left() time.Duration {
	if x.deadline.IsZero() {
		return invocationTime
	}
	return time.Until(x.deadline)
}

// once makes one attempt. The result has neither output nor error if another attempt is to follow.
func (s *inlineStep) once(
	ctx context.Context, fn func(context.Context) (json.RawMessage, error),
) (r engine.Result, pause time.Duration) {
	app := s.exec.app
	r.StartedAt = app.now()
	own, store := withStore(ctx, s.known)
	own, streams := app.withStreams(own, s.exec.host, s.exec.features)
	streams.step, streams.attempt = s.info.ID, s.info.Attempt
	output, err := attempt(own, stepContext{StepInfo: s.info, app: app}, s.limit(), fn)
	if sent := streams.end(); sent != nil {
		err = errors.Join(sent, err)
	}
	r.EndedAt = app.now()
	written := store.writes()
	if err == nil {
		err = checkStore(app.codec, s.known, written)
	}
	if err == nil {
		err = checkSize(app.codec, "the output with the input and what was stored",
			len(output)+s.input+sizeOfValues(written))
	}
	if err == nil {
		r.Output, r.Stored = output, written
		return r, 0
	}
	if m, ok := errors.AsType[*engine.MisuseError](err); ok {
		r.Err = m
		return r, 0
	}
	text, _ := json.Marshal(encodeStepError(err)) // a failure always encodes
	if isPermanent(err) || s.info.Attempt >= s.options.attempts() || ctx.Err() != nil {
		r.Error = text
		return r, 0
	}
	pause = s.options.pause(s.info.Attempt)
	if again, ok := errors.AsType[*retryError](err); ok {
		pause = max(pause, again.after)
	}
	r.Failed = []engine.Attempt{{Error: text, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Pause: pause}}
	return r, pause
}

// execute makes attempts until one succeeds, none is left, or the pause before the next one is too long for this call.
func (s *inlineStep) execute(ctx context.Context, fn func(context.Context) (json.RawMessage, error)) engine.Result {
	if early := s.after.Sub(s.exec.app.now()); early > 0 && !sleep(ctx, early) {
		return engine.Result{Err: context.Cause(ctx)}
	}
	var failed []engine.Attempt
	for left := s.pauses; ; {
		r, pause := s.once(ctx, fn)
		failed = append(failed, r.Failed...)
		switch {
		case r.Output != nil || r.Error != nil || r.Err != nil || pause > left:
			r.Failed = failed
			return r
		case !sleep(ctx, pause):
			return engine.Result{Err: context.Cause(ctx)}
		}
		left -= pause
		s.info.Attempt++
	}
}

// sleep waits, and reports false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// codeCrashed is the code of an inline step whose attempts have ended the process.
const codeCrashed = "crashed"

// clockError is by how much the clocks of the server and of this process may differ. The server's call when the time of
// a step has come would otherwise seem to be too early.
const clockError = 15 * time.Second

// ready says whether an inline operation can begin. If an earlier call has failed, perhaps because this operation has
// ended the process, an attempt is on record before it begins.
func (s *inlineStep) ready(op *engine.Operation, failed []engine.Event) (r engine.Readiness) {
	crashed := 0
	s.info.Attempt, s.after, s.pauses = 1, time.Time{}, s.exec.app.serving.pauses
	for _, e := range failed {
		if f, err := decode[failure](e.Payload); err == nil && f.Code == codeCrashed {
			crashed++
			continue
		}
		s.info.Attempt++
		s.after, s.pauses = e.Data.RetryAfter, 0
	}
	now := s.exec.app.now()
	r.Later = s.after.Sub(now) > s.exec.app.serving.clockError
	r.NextInvocation = s.exec.left() < s.options.inlineTime()
	if s.exec.attempt <= 1 {
		return r
	}
	text, _ := json.Marshal(failure{Code: codeCrashed, Message: fmt.Sprintf(
		"call %d has failed, perhaps because this step ended the process", s.exec.attempt-1)}) // a failure always encodes
	if crashed >= s.options.attempts() && !s.options.durable { // a Value does not end processes, and its error would stay
		r.Result = &engine.Result{Error: text, StartedAt: now, EndedAt: now}
		return r
	}
	r.Failed = engine.Attempt{Error: text, StartedAt: now, EndedAt: now, Pause: time.Second}
	r.Mark = op.Retry(r.Failed)
	return r
}

// The causes with which contexts of steps end, besides [ErrShutdown]; see [context.Cause].
var (
	// ErrRunEnded means that the result of an inline step is not wanted any more: its run has ended, or the server has
	// given up the call.
	ErrRunEnded = engine.ErrEnded
	// ErrStepCancelled means that the workflow has cancelled an inline step, or that the server has closed the call of a
	// step: the step or its run was cancelled, or has ended otherwise.
	ErrStepCancelled = errors.New("the step was cancelled")
	// ErrAttemptTimeout means that the time of an attempt is over; see [AttemptTimeout].
	ErrAttemptTimeout = errors.New("the time of the attempt is over")
)

type stepKey struct{}

// stepContext is what a step's context has about its call.
type stepContext struct {
	StepInfo

	app *App
	// heartbeats sends them, and progress is that of an earlier attempt; nil for inline steps.
	heartbeats *heartbeats
	progress   json.RawMessage
}

func stepOf(ctx context.Context) (stepContext, bool) {
	s, ok := ctx.Value(stepKey{}).(stepContext)
	return s, ok
}

// IdempotencyKey returns the key of the step that the context belongs to: the same for all its attempts, and for no
// other step. It is empty outside a step. Pass it on to services that support such keys, so that they act once.
func IdempotencyKey(ctx context.Context) string {
	if s, ok := stepOf(ctx); ok {
		return s.Run.ID + "/" + s.ID
	}
	return ""
}

// Info describes the attempt that the context belongs to. It is empty outside a step.
func Info(ctx context.Context) StepInfo {
	s, _ := stepOf(ctx)
	return s.StepInfo
}

// Log returns the app's logger, with the run and the step that the context belongs to. Outside a step, it is
// [slog.Default].
func Log(ctx context.Context) *slog.Logger {
	s, ok := stepOf(ctx)
	if !ok {
		return slog.Default()
	}
	return s.app.logger.With("run", s.Run.ID, "workflow", s.Run.Workflow, "step", s.ID, "attempt", s.Attempt)
}

// StepInfo describes an attempt of a step.
type StepInfo struct {
	Run RunInfo
	// ID is the ID of the step in the run, and Name its name.
	ID, Name string
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Inline is set if the step is executed where its workflow runs.
	Inline bool
	// Trace is that of the call. It is empty for inline steps, which belong to the call of their workflow.
	Trace TraceContext
}

// InvocationInfo describes a call of a workflow.
type InvocationInfo struct {
	Run RunInfo
	// Attempt is the number of the call for the same events, from 1.
	Attempt int
	// Events is the number of events in the call, and Warm is set if they continue those that the process already has.
	Events int
	Warm   bool
	// Trace is that of the call.
	Trace TraceContext
}

// TraceContext says which span a call belongs to: the values of its header fields traceparent and tracestate, as
// specified by W3C Trace Context. They are empty if the server sends no traces.
type TraceContext struct {
	Parent, State string
}

// around calls fn inside all interceptors.
func around[I any](
	ctx context.Context, info I, all []func(context.Context, I, func(context.Context) error) error,
	fn func(context.Context) error,
) error {
	if len(all) == 0 {
		return fn(ctx)
	}
	return all[0](ctx, info, func(ctx context.Context) error { return around(ctx, info, all[1:], fn) })
}
