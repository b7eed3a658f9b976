package stepwell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/backoff"
	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Step is the definition of a step with input I and output O.
type Step[I, O any] struct {
	name    string
	options []StepOption
}

// NewStep returns the definition of a step. [Step.Bind] gives it a function; a step that another deployment
// executes needs none.
func NewStep[I, O any](name string, options ...StepOption) *Step[I, O] {
	return &Step[I, O]{name: name, options: options}
}

// Name returns the name of the step.
func (s *Step[I, O]) Name() string { return s.name }

// boundStep executes a step.
type boundStep func(context.Context, json.RawMessage) (json.RawMessage, error)

// Bind returns the step with its function, for [App.Register]. The function's context ends with the attempt's time and
// with the run.
func (s *Step[I, O]) Bind(fn func(context.Context, I) (O, error)) Definition {
	return Definition{
		name: s.name, kind: "step",
		problems: append(unbound(fn == nil), roundTrips[I, O]()...),
		step: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
			in, err := decode[I](input)
			if err != nil {
				return nil, Fail(codeUndecodable, fmt.Sprintf("decode the input of step %s: %v", s.name, err))
			}
			out, err := fn(ctx, in)
			if err != nil {
				return nil, err
			}
			data, err := encode(out)
			if err != nil {
				return nil, Fail(codeUnencodable, fmt.Sprintf("encode the output of step %s: %v", s.name, err))
			}
			return data, nil
		},
	}
}

// Run runs the step and waits for its output. If the step fails for good, the error is a [*StepError].
func (s *Step[I, O]) Run(w *Context, in I, options ...StepOption) (O, error) {
	return s.Go(w, in, options...).rest(w)
}

// Go starts the step and returns its future.
func (s *Step[I, O]) Go(w *Context, in I, options ...StepOption) *Future[O] {
	if w.scope.err != nil {
		w.co.Check()
		return failed[O](w.scope.err)
	}
	o := collect(slices.Concat(s.options, options))
	input, err := encode(in)
	if err != nil {
		return failed[O](fmt.Errorf("encode the input of step %s: %w", s.name, err))
	}
	if err := checkSize(w.exec.app.codec, "the input of step "+s.name, len(input)); err != nil {
		return failed[O](err)
	}
	op := &engine.Operation{
		Kind: engine.KindStep, ID: w.idOr(o.id, s.name), Name: s.name, Input: input, Place: engine.Caller(),
		Undone: o.undo != nil,
	}
	if !w.exec.offers("undo") {
		o.undoneBy = ""
	}
	if !w.exec.offers("heartbeat") {
		o.heartbeatTimeout = 0
	}
	op.Command = newRunStep(op, o)
	known := w.exec.engine.Known(op.Kind, op.ID) // it has begun in an earlier call
	if bound := w.exec.app.steps[s.name].step; bound != nil && !known && w.exec.inlineFirst(o) {
		firstInline(w.exec, op, o, bound)
	}
	w.ask(op)
	f := resultOf[O](w.exec, op)
	if o.undo != nil {
		if w.saga == nil {
			panic(fmt.Sprintf("%s: step %s has an Undo, but it does not run in WithSaga", op.Place, s.name))
		}
		o.undo(w, in, f)
	}
	return f
}

// inlineFirst reports whether the first attempt of a step is made in this call. A step that may have ended the process
// in an earlier call is not made again here, but counted by the server.
func (x *execution) inlineFirst(o stepOptions) bool {
	return !o.remote && o.deployment == "" && x.attempt <= 1 && x.left() >= o.inlineTime()
}

// firstInline lets the first attempt of a step be made in this call, and the others by the server.
func firstInline(x *execution, op *engine.Operation, o stepOptions, bound boundStep) {
	s := &inlineStep{exec: x, options: o, known: x.snapshot(), input: len(op.Input), info: StepInfo{
		Run: x.info, ID: op.ID, Name: op.Name, Attempt: 1, Inline: true,
	}}
	op.Execute = func(ctx context.Context) engine.Result {
		r, _ := s.once(ctx, func(ctx context.Context) (json.RawMessage, error) { return bound(ctx, op.Input) })
		return r
	}
	op.Durable = !x.options.batch
	op.Record = recording(op)
	op.Retry = func(a engine.Attempt) any {
		c := newRunStep(op, o)
		c.FirstAttempt = &firstAttempt{a.Error, a.StartedAt, a.EndedAt, ""}
		if a.Pause > o.pause(1) {
			c.FirstAttempt.RetryAfter = a.Pause.String()
		}
		return c
	}
}

// runStep is the command that starts a step.
type runStep struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	Input            json.RawMessage `json:"input"`
	Deployment       string          `json:"deployment,omitempty"`
	Timeout          string          `json:"timeout,omitempty"`
	AttemptTimeout   string          `json:"attemptTimeout,omitempty"`
	HeartbeatTimeout string          `json:"heartbeatTimeout,omitempty"`
	Retry            *retry          `json:"retry,omitempty"`
	FirstAttempt     *firstAttempt   `json:"firstAttempt,omitempty"`
	Limits           []LimitUse      `json:"limits,omitempty"`
	Priority         string          `json:"priority,omitempty"`
	At               string          `json:"at,omitempty"`
	Undo             string          `json:"undo,omitempty"`
}

// firstAttempt is the attempt that was made inline, and failed.
type firstAttempt struct {
	Error      json.RawMessage `json:"error"`
	StartedAt  time.Time       `json:"startedAt"`
	EndedAt    time.Time       `json:"endedAt"`
	RetryAfter string          `json:"retryAfter,omitempty"`
}

func newRunStep(op *engine.Operation, o stepOptions) runStep {
	c := runStep{
		Type: "runStep", ID: op.ID, Name: op.Name, Input: op.Input, Deployment: o.deployment, At: op.Place,
		Undo: o.undoneBy, Timeout: unlessZero(o.timeout), AttemptTimeout: unlessZero(o.attemptTimeout), Limits: o.limits,
		HeartbeatTimeout: unlessZero(o.heartbeatTimeout),
	}
	if o.priority != 0 {
		c.Priority = o.priority.String()
	}
	if o.retry != (retry{}) {
		c.Retry = &o.retry
	}
	return c
}

// unlessZero returns a duration as the API has it; empty if there is none.
func unlessZero(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}

// resultOf returns the future of an operation that ends with step_completed or step_failed.
func resultOf[T any](x *execution, op *engine.Operation) *Future[T] {
	return &Future[T]{
		op:   op,
		stop: func(reason string) { x.cancel(op, reason) },
		done: func() bool { return op.Done() || op.Cancelled && op.Kind != engine.KindChild },
		get: func() (T, error) {
			if len(op.Received) == 0 {
				return *new(T), ErrCancelled
			}
			e := op.Received[0]
			if e.Type == "step_completed" {
				v, err := decode[T](e.Payload)
				if err != nil {
					panic(newUndecodable[T](op, err))
				}
				return v, nil
			}
			if op.Kind == engine.KindChild {
				return *new(T), childError(x, op, e)
			}
			return *new(T), stepError(op, e)
		},
	}
}

// stepError returns the error of a step that failed.
func stepError(op *engine.Operation, e *engine.Event) error {
	f, code := decodeFailure(e.Payload), e.Data.ErrorCode
	return &StepError{
		Step: op.Name, ID: op.ID, Code: f.Code, Message: f.Message, Details: f.Details,
		// The server sets these codes by itself, and the SDK those of what the workflow has cancelled. Any other one comes
		// from the step.
		server: !e.Data.IsRecorded() && (code == codeTimeout || code == codeCancelled) ||
			op.Cancelled && (f.Code == codeCancelled || f.Code == codeNotBegun),
	}
}

type stepOptions struct {
	id             string
	deployment     string
	timeout        time.Duration
	attemptTimeout time.Duration
	// heartbeatTimeout is after which silence an attempt has failed; 0 if it may be silent.
	heartbeatTimeout time.Duration

	retry          retry
	first, longest time.Duration // pauses between attempts; 0: the default
	remote         bool
	limits         []LimitUse
	priority       time.Duration
	durable        bool
	// problem is what is wrong with an option; empty if nothing is.
	problem string
	// undo adds a compensation of the step to the handle's saga.
	undo func(w *Context, in, future any)
	// undoneBy names the compensation: see [placeOf].
	undoneBy string
}

// retry is the policy of retries, as the contract describes it.
type retry struct {
	MaxAttempts int    `json:"maxAttempts,omitempty"`
	Backoff     string `json:"backoff,omitempty"`
	MaxBackoff  string `json:"maxBackoff,omitempty"`
}

// Attempts sets how many attempts a step has at most, from 1; 5 by default.
func Attempts(n int) DoOption {
	return doOption(func(o *stepOptions) {
		o.retry.MaxAttempts = n
		o.check(n >= 1, "Attempts(%d): a step has one attempt at least", n)
	})
}

// Backoff sets the pause after the first failed attempt, which doubles with each further one up to the longest. By
// default they are a second and five minutes. The server makes each pause up to a quarter shorter, at random.
func Backoff(first, longest time.Duration) DoOption {
	return doOption(func(o *stepOptions) {
		o.first, o.longest = first, longest
		o.retry.Backoff, o.retry.MaxBackoff = first.String(), longest.String()
	})
}

// AttemptTimeout limits one attempt, from a second to 12 hours; 5 minutes by default. The context of the step's
// function ends then. A function that ignores it for another half a second is left behind, and what it returns later
// does not count.
func AttemptTimeout(d time.Duration) DoOption {
	return doOption(func(o *stepOptions) {
		o.attemptTimeout = d
		o.check(time.Second <= d && d <= 12*time.Hour, "AttemptTimeout(%s): it is from a second to 12 hours", d)
	})
}

// Remote makes all attempts of the step calls of its own. By default the first attempt is made where the workflow runs,
// unless there is too little time left, or an earlier call has failed, perhaps because of this step.
func Remote() StepOption { return stepOption(func(o *stepOptions) { o.remote = true }) }

// AtMostOnce has the step's function called once at most, for an effect that must never be repeated: it is [Remote]
// with one of [Attempts]. If nobody knows what the function did, because it gave no answer, or its program or the
// server has died or stopped meanwhile, the step fails with the code no_answer.
func AtMostOnce() StepOption {
	return stepOption(func(o *stepOptions) { o.remote, o.retry.MaxAttempts = true, 1 })
}

// durable puts the result on disk before the next step begins, in batches as well.
var durable = doOption(func(o *stepOptions) { o.durable = true })

// The policy of retries if nothing is set, as the contract has it.
const (
	defaultAttempts = 5
	defaultFirst    = time.Second
	defaultLongest  = 5 * time.Minute
	// leastInline is how much time must be left for an inline attempt without a limit of its own.
	leastInline = time.Minute
)

func (o stepOptions) attempts() int { return max(cmp.Or(o.retry.MaxAttempts, defaultAttempts), 1) }

// inlineTime is how much time must be left for an inline attempt.
func (o stepOptions) inlineTime() time.Duration { return cmp.Or(o.attemptTimeout, leastInline) }

// pause returns the pause after a number of failed attempts.
func (o stepOptions) pause(failed int) time.Duration {
	return backoff.Pause(cmp.Or(o.first, defaultFirst), cmp.Or(o.longest, defaultLongest), 2, failed)
}

// collect returns the options together. One that the server would refuse panics, which names the line and blocks the
// run, before anything is done.
func collect[S StepOption](options []S) (o stepOptions) {
	for _, set := range options {
		set.configureStep(&o)
	}
	if o.problem != "" {
		panic(engine.Caller() + ": " + o.problem)
	}
	return o
}

// check keeps what is wrong with an option.
func (o *stepOptions) check(right bool, problem string, about ...any) {
	if !right {
		o.problem = fmt.Sprintf(problem, about...)
	}
}

// Do executes fn as a step of its own, right here, and returns its output. The result is recorded: when the workflow
// runs again, fn is not called. A failed attempt is repeated, up to the number of [Attempts] with the pauses of
// [Backoff]: in this call as long as the pauses are no longer than a second all in all, then in later ones. If the last
// attempt fails, its error is recorded.
//
// What it executes runs in the call of the workflow. So it takes no options that are about calls of steps: [Remote],
// [Deployment], [Timeout], [Limits], [Priority] and [Step.Undo].
//
// Fn is called again if the process dies before the result is on disk. If it seems to be fn that ends the process, the
// step fails with the code crashed when all attempts are used up.
func Do[T any](w *Context, name string, fn func(context.Context) (T, error), options ...DoOption) (T, error) {
	return DoGo(w, name, fn, options...).rest(w)
}

// DoGo is [Do] that does not wait.
func DoGo[T any](w *Context, name string, fn func(context.Context) (T, error), options ...DoOption) *Future[T] {
	if w.scope.err != nil {
		w.co.Check()
		return failed[T](w.scope.err)
	}
	o := collect(options)
	id := w.idOr(o.id, name)
	s := &inlineStep{
		exec: w.exec, options: o, known: w.exec.snapshot(),
		info: StepInfo{Run: w.exec.info, ID: id, Name: name, Inline: true},
	}
	op := &engine.Operation{Kind: engine.KindInline, ID: id, Name: name, Durable: o.durable || !w.exec.options.batch}
	op.Execute = func(ctx context.Context) engine.Result {
		return s.execute(ctx, func(ctx context.Context) (json.RawMessage, error) {
			v, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			data, err := encode(v)
			if err != nil {
				return nil, Fail(codeUnencodable, fmt.Sprintf("encode the output: %v", err))
			}
			return data, nil
		})
	}
	op.Ready = func(failed []engine.Event) engine.Readiness { return s.ready(op, failed) }
	op.Record = recording(op)
	op.Retry = func(a engine.Attempt) any {
		return recordStep{
			Type: "recordStep", ID: id, Name: name, Error: a.Error, At: op.Place, RetryAfter: a.Pause.String(),
			StartedAt: a.StartedAt, EndedAt: a.EndedAt,
		}
	}
	w.ask(op)
	return resultOf[T](w.exec, op)
}

// Exec is [Do] without an output.
func Exec(w *Context, name string, fn func(context.Context) error, options ...DoOption) error {
	_, err := Do(w, name, func(ctx context.Context) (None, error) { return None{}, fn(ctx) }, options...)
	return err
}

// recordStep is the command that records the result of an inline step, or an attempt that is not the last.
type recordStep struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      json.RawMessage `json:"error,omitempty"`
	Seen       int64           `json:"seen,omitempty"`
	StartedAt  time.Time       `json:"startedAt,omitzero"` // zero if it was cancelled before it began
	EndedAt    time.Time       `json:"endedAt"`
	RetryAfter string          `json:"retryAfter,omitempty"`
	At         string          `json:"at,omitempty"`
	Undo       string          `json:"undo,omitempty"`

	Store map[string]json.RawMessage `json:"store,omitempty"` // written with the output
}

// recording returns what makes the command that records the result of an operation.
func recording(op *engine.Operation) func(engine.Result, engine.Recorded) any {
	step, _ := op.Command.(runStep)
	return func(r engine.Result, how engine.Recorded) any {
		return recordStep{
			Type: "recordStep", ID: op.ID, Name: op.Name, Input: op.Input, Output: r.Output, Error: r.Error,
			Seen: how.Seen, StartedAt: how.StartedAt, EndedAt: how.EndedAt, At: op.Place, Store: r.Stored,
			Undo: step.Undo,
		}
	}
}
