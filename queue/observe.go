package queue

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Observer watches deliveries, for metrics and traces. It is called by many at once, and must be quick.
type Observer interface {
	// Deliver is called once a message was claimed. The delivery goes on with the context that it returns, and
	// calls the function once when it is over.
	Deliver(context.Context, Delivering) (context.Context, func(Delivered))
	// Call is called before a function is, and may add to the headers that it is called with.
	Call(context.Context, http.Header)
}

// Delivering is a delivery that begins.
type Delivering struct {
	MessageID    string
	DeploymentID string
	// RunID is empty when the message is about no run.
	RunID entities.RunID
	// Work is the work the server has to do; [entities.WorkNone] for a message to a function.
	Work entities.Work
	// Subject is the ID of the step, hook or signal that the work is about; often empty.
	Subject string
	// Attempt counts the deliveries of the message, from 1.
	Attempt int
	// Waited is how long the message has been ready to be delivered.
	Waited time.Duration
}

// Delivered is how a delivery ended.
type Delivered struct {
	Outcome Outcome
	// Why is the reason if it failed. It contains nothing that a function said.
	Why string
}

// Outcome is how a delivery ends.
type Outcome string

// The outcomes of deliveries.
const (
	// OutcomeDone: the app answered, or the work was done, which includes recording a failure.
	OutcomeDone Outcome = "done"
	// OutcomeFailed: the function failed, or its answer could not be carried out. It is tried again.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnreached: the function could not be reached, is not registered, or was not called for lack of memory or
	// time. It is tried again.
	OutcomeUnreached Outcome = "unreached"
	// OutcomeDropped: there was nothing left to do, or another process does it.
	OutcomeDropped Outcome = "dropped"
	// OutcomeStopped: this server stopped first.
	OutcomeStopped Outcome = "stopped"
	// OutcomeLost: the result could not be recorded. It is tried again.
	OutcomeLost Outcome = "lost"
)

// unobserved is the observer of a worker that has none.
type unobserved struct{}

func (unobserved) Deliver(ctx context.Context, _ Delivering) (context.Context, func(Delivered)) {
	return ctx, func(Delivered) {}
}

func (unobserved) Call(context.Context, http.Header) {}

// observed delivers under the observer's eyes a message that was ready for so long.
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

// tally counts what a process has done.
type tally struct {
	delivered atomic.Int64
	failed    atomic.Int64 // of those, what failed and is tried again
}

func (t *tally) add(o Outcome) {
	t.delivered.Add(1)
	if o == OutcomeFailed || o == OutcomeUnreached || o == OutcomeLost {
		t.failed.Add(1)
	}
}
