package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
)

// Handler does one kind of work that was claimed. It ends the work's lease, which a nil error does not; work that fails
// is tried again, as a [Failure] says or after a backoff.
type Handler func(context.Context, Delivery) error

// errUnknownWork: another version of the server left it.
const errUnknownWork = PublicError("the work is unknown to this version of the server")

// Perform has a piece of work done that was claimed, and puts off what cannot be done.
func (w *deliverer) Perform(ctx context.Context, d Delivery) (Delivered, error) {
	do, ok := w.options.Handlers[d.Work]
	if !ok {
		return w.putOff(ctx, d, fmt.Errorf("%w: %q", errUnknownWork, d.Work))
	}
	d = w.Bind(d)
	err := do(ctx, d)
	switch {
	case err == nil:
		return Delivered{Outcome: OutcomeDone}, nil
	case errors.Is(err, entities.ErrStale):
		// Another process does it now, or will as soon as one sees that the lease is over.
		return Delivered{OutcomeDropped, redact(err)}, nil
	case IsOver(err):
		return Delivered{OutcomeDropped, redact(err)}, Persist(ctx, d.End)
	case Interrupted(ctx, err): // others go on at once
		return Delivered{Outcome: OutcomeStopped}, w.nack(ctx, d.Lease, Failure{Reason: "the server was stopped"})
	default:
		return w.putOff(ctx, d, err)
	}
}

// Bind makes a delivery one of this process, whose memory and connections it then uses.
func (w *deliverer) Bind(d Delivery) Delivery {
	d.by = w
	return d
}

// putOff has the work tried again after a while.
func (w *deliverer) putOff(ctx context.Context, d Delivery, err error) (Delivered, error) {
	f := d.Failure(err)
	w.logger.InfoContext(ctx, "work failed", "message", d.ID, "run", d.RunID, "work", d.Work, "subject", d.Subject,
		"delivery", d.DeliveryCount, "error", f.Public)
	return f.delivered(), w.nack(ctx, d.Lease, f)
}

// IsOver reports whether an error means that there is nothing left to do: the run has ended or is gone, or another
// delivery does it.
func IsOver(err error) bool {
	return errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound) ||
		errors.Is(err, entities.ErrStale)
}

// Interrupted reports whether work failed because the server stops. Work that is broken off by the end of a drain is
// not interrupted but too long.
func Interrupted(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, errDrainOver)
}
