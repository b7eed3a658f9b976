package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
)

// errUnknownWork: another version of the server left it.
var errUnknownWork = errors.New("the work is unknown to this version of the server")

// perform does a piece of work that was claimed. What cannot be done is put off.
func (w *deliverer) perform(ctx context.Context, d delivery) (Delivered, error) {
	do, ok := map[entities.Work]func(context.Context, delivery) error{
		entities.WorkRun:      w.invoke,
		entities.WorkStep:     w.executeStep,
		entities.WorkDeadline: w.enforceDeadline,
		entities.WorkReport:   w.report,
		entities.WorkEnd:      w.endChildren,
		entities.WorkSignal:   w.handSignal,
		entities.WorkLookBack: w.lookBack,
	}[d.Work]
	if !ok {
		return w.putOff(ctx, d, fmt.Errorf("%w: %q", errUnknownWork, d.Work))
	}
	err := do(ctx, d)
	switch {
	case err == nil:
		return Delivered{Outcome: OutcomeDone}, nil
	case errors.Is(err, entities.ErrStale):
		// It is others' now, or will be as soon as somebody sees that the lease is over.
		return Delivered{OutcomeDropped, redact(err)}, nil
	case over(err):
		return Delivered{OutcomeDropped, redact(err)}, w.drop(ctx, d)
	case errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, errDrainOver): // shutting down: others go on at once
		return Delivered{Outcome: OutcomeStopped}, w.nack(ctx, d.Lease, failure{reason: "the server was stopped"})
	default:
		return w.putOff(ctx, d, err)
	}
}

// putOff has the work tried again after a while.
func (w *deliverer) putOff(ctx context.Context, d delivery, err error) (Delivered, error) {
	f := failureOf(d, err)
	if later := (*laterError)(nil); errors.As(err, &later) {
		f = later.failure
	}
	w.logger.InfoContext(ctx, "work failed", "message", d.ID, "run", d.RunID, "work", d.Work, "subject", d.Subject,
		"delivery", d.DeliveryCount, "error", f.public)
	return f.delivered(), w.nack(ctx, d.Lease, f)
}

// laterError is a failure that says when to try again.
type laterError struct{ failure }

func (e *laterError) Error() string { return e.reason }

// drop ends the work, since there is nothing to do.
func (w *deliverer) drop(ctx context.Context, d delivery) error {
	return persist(ctx, func(ctx context.Context) error { return deleteWork(ctx, w.queue.pool, d.Lease) })
}
