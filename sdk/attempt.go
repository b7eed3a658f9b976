package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// attempt makes one attempt of a step: within its time, and inside the interceptors. A panic is an error.
func attempt[T any](
	ctx context.Context, s stepContext, limit time.Duration, fn func(context.Context) (T, error),
) (v T, err error) {
	ctx = withStep(ctx, s)
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrAttemptTimeout)
		defer cancel()
	}
	err = around(ctx, s.StepInfo, s.app.serving.aroundSteps, func(ctx context.Context) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = newPanicError(p)
			}
		}()
		v, err = fn(ctx)
		return err
	})
	return v, err
}

// inlineStep executes the attempts of an inline operation.
type inlineStep struct {
	turn    *turn
	options stepOptions
	info    StepInfo
	known   map[string]json.RawMessage // the store of the run when the step began
	// pauses is how long attempts may be apart in this call, all in all.
	pauses time.Duration
	// after is when the first attempt may begin.
	after time.Time
}

// lastPart is the part of a call that is left for its answer, as a fraction.
const lastPart = 20

// limit returns how long an attempt may take: no longer than the call.
func (s *inlineStep) limit() time.Duration {
	left := s.turn.left() - invocationTime/lastPart
	if s.options.attemptTimeout > 0 {
		return min(s.options.attemptTimeout, max(left, time.Second))
	}
	return max(left, time.Second)
}

// left returns how much time is left of the call.
func (t *turn) left() time.Duration {
	if t.deadline.IsZero() {
		return invocationTime
	}
	return time.Until(t.deadline)
}

// once makes one attempt. The result has neither output nor error if another attempt is to follow.
func (s *inlineStep) once(
	ctx context.Context, fn func(context.Context) (json.RawMessage, error),
) (r engine.Result, pause time.Duration) {
	app := s.turn.app
	r.StartedAt = app.now()
	ctx, store := withStore(ctx, s.known)
	output, err := attempt(ctx, stepContext{s.info, app}, s.limit(), fn)
	r.EndedAt = app.now()
	if err == nil {
		r.Output, r.Stored = output, store.writes()
		return r, 0
	}
	if m := (*engine.MisuseError)(nil); errors.As(err, &m) {
		r.Err = m
		return r, 0
	}
	text, _ := json.Marshal(encodeError(err)) // a failure always encodes
	if isPermanent(err) || s.info.Attempt >= s.options.attempts() || ctx.Err() != nil {
		r.Error = text
		return r, 0
	}
	pause = s.options.pause(s.info.Attempt)
	if again := (*retryError)(nil); errors.As(err, &again) {
		pause = max(pause, again.after)
	}
	r.Failed = []engine.Attempt{{Error: text, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Pause: pause}}
	return r, pause
}

// execute makes attempts until one succeeds, none is left, or the pause before the next one is too long for this call.
func (s *inlineStep) execute(ctx context.Context, fn func(context.Context) (json.RawMessage, error)) engine.Result {
	if early := s.after.Sub(s.turn.app.now()); early > 0 && !sleep(ctx, early) {
		return engine.Result{Err: context.Cause(ctx)}
	}
	durable := s.turn.offers("retryAfter")
	var failed []engine.Attempt
	for left := s.pauses; ; {
		r, pause := s.once(ctx, fn)
		failed = append(failed, r.Failed...)
		switch {
		case r.Output != nil || r.Error != nil || r.Err != nil || durable && pause > left:
			r.Failed = failed
			if !durable {
				r.Failed = nil
			}
			return r
		case !sleep(ctx, min(pause, left)):
			return engine.Result{Err: context.Cause(ctx)}
		}
		left -= min(pause, left)
		s.info.Attempt++
	}
}

// codeCrashed is the code of an inline step whose attempts have ended the process.
const codeCrashed = "crashed"

// clockError is by how much the clocks of the server and of this process may differ. The server's call when the time of a
// step has come would otherwise seem to be too early.
const clockError = 15 * time.Second

// ready says whether an inline operation can begin. If an earlier call has failed, perhaps because this operation has
// ended the process, an attempt is on record before it begins.
func (s *inlineStep) ready(op *engine.Operation, failed []engine.Event) (r engine.Readiness) {
	crashed := 0
	s.info.Attempt, s.after, s.pauses = 1, time.Time{}, s.turn.app.serving.pauses
	for _, e := range failed {
		if f, err := decode[failure](e.Payload); err == nil && f.Code == codeCrashed {
			crashed++
			continue
		}
		s.info.Attempt++
		s.after, s.pauses = e.Data.RetryAfter, 0
	}
	now := s.turn.app.now()
	r.Later = s.after.Sub(now) > clockError
	r.NextInvocation = s.turn.left() < s.options.inlineTime()
	if s.turn.attempt <= 1 || !s.turn.offers("retryAfter") {
		return r
	}
	text, _ := json.Marshal(failure{Code: codeCrashed, Message: fmt.Sprintf(
		"call %d has failed, perhaps because this step ended the process", s.turn.attempt-1)}) // a failure always encodes
	if crashed >= s.options.attempts() {
		r.Result = &engine.Result{Error: text, StartedAt: now, EndedAt: now}
		return r
	}
	r.Failed = engine.Attempt{Error: text, StartedAt: now, EndedAt: now, Pause: time.Second}
	r.Mark = op.Retry(r.Failed)
	return r
}
