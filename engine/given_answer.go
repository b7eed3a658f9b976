package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/pull"
)

// GivenAnswer is an answer of a function that comes by a request of its own, because the connection of the call has
// ended, or because a worker has made the call: what the function would have answered.
type GivenAnswer struct {
	pull.Answer

	// Seen is the position up to which the call had the log, if the answer to an invocation does not say it itself.
	Seen int64
}

// KeepCall notes that the function works on a call under way: see [queue.Queue.KeepCall]. It fails with
// [message.ErrStale] if the call is over, and with [entities.ErrRunEnded] if the run is.
func (e *Engine) KeepCall(ctx context.Context, c token.Call) error {
	return e.whyStale(ctx, c, e.queue.KeepCall(ctx, c))
}

// Beat notes a heartbeat of the function that executes a step: see [queue.Queue.Beat]. It fails as [Engine.KeepCall]
// does.
func (e *Engine) Beat(ctx context.Context, c token.Call, progress []byte) error {
	return e.whyStale(ctx, c, e.queue.Beat(ctx, c, progress))
}

// TakeAnswer passes the answer to a call under way on to the delivery that waits for it in this process, or else does
// with it what the server does that made the call. It fails as [Engine.KeepCall] does: nothing happens then. While the
// database is away, the function repeats its request.
func (e *Engine) TakeAnswer(ctx context.Context, c token.Call, given GivenAnswer) error {
	taken, err := e.queue.AnswerHere(ctx, c, given.Answer)
	if !taken {
		err = e.takeForAnother(ctx, c, given)
	}
	return e.whyStale(ctx, c, err)
}

// takeForAnother takes an answer to a call of another process.
func (e *Engine) takeForAnother(ctx context.Context, c token.Call, given GivenAnswer) error {
	d, err := e.queue.Called(ctx, c)
	if err != nil {
		return err
	}
	now := e.log.Now()
	a := answer{
		status: given.Status, body: given.Body, asksLater: given.RetryAfter != "",
		retryAfter: retryAfter(given.RetryAfter, now), isStepAnswer: contract.IsStepAnswer(given.ContentType),
	}
	if reason, ok := a.isRefusal(); ok {
		return d.Release(ctx, d.Failure(d.NotServed(reason)))
	}
	switch d.Work {
	case message.WorkStep:
		return e.takeStepAnswer(ctx, d, a, now)
	case message.WorkRun:
		return e.takeRunAnswer(ctx, d, a, given.Seen)
	default:
		return entities.Invalid("the work %q has no answer", d.Work)
	}
}

// takeStepAnswer records the answer to the call of a step.
func (e *Engine) takeStepAnswer(ctx context.Context, d queue.Delivery, a answer, now time.Time) error {
	s, err := e.loadStep(ctx, d)
	if err != nil {
		return err
	}
	err = e.record(ctx, d, s, s.decide(a, nil, d.DeliveryCount, now))
	if len(s.spec.Limits) > 0 {
		e.queue.Freed(d.Project, s.spec.Limits)
	}
	return err
}

// takeRunAnswer applies the answer to an invocation, or releases the work as after a failed one.
func (e *Engine) takeRunAnswer(ctx context.Context, d queue.Delivery, a answer, seen int64) error {
	run, err := store.RunByID(ctx, pg.NewPool(e.pool), d.Project, d.RunID)
	if err != nil {
		return err
	}
	if a.status == http.StatusPreconditionFailed {
		e.kept.Remove(d.RunID)
		return d.Release(ctx, *d.NotServed("it does not keep the run")) // the next call has the whole log
	}
	if !a.ok() {
		e.kept.Remove(d.RunID)
		return d.Release(ctx, d.Failure(e.refused(d, a)))
	}
	var position struct{ Seen int64 }
	if err := json.Unmarshal(a.body, &position); err != nil || max(position.Seen, seen) < 1 {
		return entities.Invalid("an answer that comes by a request of its own must have seen, in its body or beside it")
	}
	run.LastSeq = min(run.LastSeq, cmp.Or(position.Seen, seen))
	err = e.answer(ctx, d, run, a.body)
	refused := (*eventlog.RefusedError)(nil)
	if err == nil || errors.Is(err, message.ErrStale) || !isPermanent(err) && !errors.As(err, &refused) {
		return err
	}
	if queue.IsOver(err) && !errors.As(err, &refused) {
		return errors.Join(err, d.End(ctx))
	}
	err = e.outcome(d, run, err)
	return errors.Join(err, d.Release(ctx, d.Failure(err)))
}
