package queue

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// Observer observes deliveries, for metrics and traces. Its methods are called concurrently and must return quickly.
type Observer interface {
	// Deliver is called when a message has been claimed. The delivery continues with the returned context, and calls
	// the returned function once when it ends.
	Deliver(context.Context, Delivering) (context.Context, func(Delivered))
	// Call is called before each request to a function, and may add headers to the request.
	Call(context.Context, http.Header)
}

// Delivering describes a delivery that starts.
type Delivering struct {
	MessageID    string
	DeploymentID string
	// RunID is the message's run; empty if it has none.
	RunID entities.RunID
	// Work is the kind of work that the server does; [message.WorkNone] for a message to a function.
	Work message.Work
	// Subject is the ID of the work's step, hook or signal; often empty.
	Subject string
	// Attempt counts the deliveries of the message, from 1.
	Attempt int
	// Waited is how long the message was ready before its delivery.
	Waited time.Duration
}

// Delivered describes how a delivery ended.
type Delivered struct {
	Outcome Outcome
	// Why is the reason if it failed. It contains no text from a function.
	Why string
}

// Outcome is how a delivery ends.
type Outcome string

// The outcomes of deliveries.
const (
	// OutcomeDone: the function answered, or the work was done, which includes recording a failed result.
	OutcomeDone Outcome = "done"
	// OutcomeFailed: the function failed, or its answer could not be applied. The message is retried.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnreached: the function could not be reached, its deployment is not registered, or it was not called for
	// lack of memory or time. The message is retried.
	OutcomeUnreached Outcome = "unreached"
	// OutcomeDropped: nothing was left to do, or another process does it.
	OutcomeDropped Outcome = "dropped"
	// OutcomeStopped: the server stopped first.
	OutcomeStopped Outcome = "stopped"
	// OutcomeLost: the result could not be stored. The message is retried.
	OutcomeLost Outcome = "lost"
)

// noObserver is the observer of a worker that is configured without one.
type noObserver struct{}

func (noObserver) Deliver(ctx context.Context, _ Delivering) (context.Context, func(Delivered)) {
	return ctx, func(Delivered) {}
}

func (noObserver) Call(context.Context, http.Header) {}

// observed delivers a message and reports the delivery to the observer. Waited is how long the message was ready.
func (w *deliverer) observed(ctx context.Context, d Delivery, waited time.Duration, free func()) error {
	ctx, done := w.options.Observer.Deliver(ctx, Delivering{
		MessageID: d.ID, DeploymentID: d.DeploymentID, RunID: d.RunID, Work: d.Work, Subject: d.Subject,
		Attempt: d.DeliveryCount, Waited: max(0, waited),
	})
	end, err := w.deliver(ctx, d, free)
	if err != nil {
		end = Delivered{OutcomeLost, redact(err)}
	}
	w.tally.add(end.Outcome)
	done(end)
	return err
}

// tally counts the deliveries of a process.
type tally struct {
	delivered atomic.Int64
	failed    atomic.Int64 // those that will be retried
}

func (t *tally) add(o Outcome) {
	t.delivered.Add(1)
	if o == OutcomeFailed || o == OutcomeUnreached || o == OutcomeLost {
		t.failed.Add(1)
	}
}
