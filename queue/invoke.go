package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// callEvents is how much of a run's log a call brings along.
const callEvents = 1000

// invoke calls the function of a run that can move, and carries out what it asks for.
func (w *deliverer) invoke(ctx context.Context, d delivery) error {
	run, size, err := w.options.Runs.begin(ctx, d)
	if err != nil {
		return err
	}
	a, err := w.askRun(ctx, d, run, size)
	if err != nil {
		return err
	}
	if !a.ok() {
		return later(d, a.refusal(d.URL), a.retryAfter)
	}
	return w.carryOut(ctx, d, run, a)
}

// askRun calls the function of a run. The log that the call brings along, of that size, takes memory until there is an
// answer.
func (w *deliverer) askRun(ctx context.Context, d delivery, run entities.Run, size int64) (answer, error) {
	free, err := w.roomForLog(ctx, d, size)
	if err != nil {
		return answer{}, err
	}
	defer free()
	call, err := w.options.Runs.call(ctx, d, run)
	if err != nil {
		return answer{}, err
	}
	// A tenth of the lease is left for carrying out the answer.
	return w.ask(ctx, d, call, w.lease-w.lease/10)
}

// roomForLog takes memory for a log. The function has its whole time all the same, once there is some; if there is none
// for long, others have their turn.
func (w *deliverer) roomForLog(ctx context.Context, d delivery, size int64) (free func(), err error) {
	if free, ok := w.memory.try(size); ok {
		return free, nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.lease/2)
	defer cancel()
	free, err = w.memory.take(waiting, size)
	if err != nil && ctx.Err() == nil {
		const reason = "there was no memory for the log"
		return nil, &laterError{failure{reason: reason, public: reason, after: firstBackoff}}
	}
	if err != nil {
		return nil, err
	}
	if err := extendLease(ctx, w.queue.pool, d.Lease, w.lease); err != nil {
		free()
		return nil, err
	}
	return free, nil
}

// carryOut does what the function asks for, also when the server is shutting down or the database is away for a
// while: the function was called, and need not be called again.
func (w *deliverer) carryOut(ctx context.Context, d delivery, run entities.Run, a answer) error {
	var verdict error
	err := persist(ctx, func(ctx context.Context) error {
		verdict = w.options.Runs.answer(ctx, d, run, a.body)
		if verdict != nil && !final(verdict) {
			return verdict
		}
		return nil
	})
	if refused := (*eventlog.RefusedError)(nil); errors.As(verdict, &refused) {
		return later(d, verdict, 0) // it may say that the run has ended: by this very answer, which did not count
	}
	return errors.Join(err, verdict)
}

// final reports whether an answer that failed in this way fails every time.
func final(err error) bool {
	refused := (*eventlog.RefusedError)(nil)
	return over(err) || errors.As(err, &refused) || errors.Is(err, entities.ErrInvalid) ||
		errors.Is(err, entities.ErrDeploymentNotFound) || errors.Is(err, ErrNothingLeft)
}

// later is a failure that is tried again after its backoff, and not before the function wants it.
func later(d delivery, err error, notBefore time.Duration) error {
	f := failureOf(d, err)
	f.after = max(f.after, notBefore)
	return &laterError{f}
}

// call is the invocation of a run's function.
func (r *Runs) call(ctx context.Context, d delivery, run entities.Run) (contract.Call, error) {
	page, err := r.logOf(ctx, d, run)
	if err != nil {
		return contract.Call{}, err
	}
	c := contract.Call{
		Type: contract.TypeWorkflow, Invocation: d.Lease, Attempt: d.DeliveryCount, Run: contract.About(run),
		Events: make([]json.RawMessage, len(page.Events)),
	}
	for i, e := range page.Events {
		if c.Events[i], err = json.Marshal(view.Of(e)); err != nil {
			return contract.Call{}, fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
	}
	c.Run.Input = page.Events[0].Payload
	if page.More {
		c.After = &page.Events[len(page.Events)-1].Seq
	}
	return c, nil
}

// logOf is the beginning of the run's log: as it was when the invocation began, if that is at hand. What has come since
// has the run invoked again.
func (r *Runs) logOf(ctx context.Context, d delivery, run entities.Run) (read.EventPage, error) {
	if d.hasBegun() && d.begun.Log != nil && len(d.begun.Log) <= callEvents {
		return read.EventPage{Events: d.begun.Log}, nil
	}
	return r.log.Events(ctx, d.Project, run.ID, pg.Page{Limit: callEvents}, read.WithPayloads)
}
