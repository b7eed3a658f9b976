package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// callEvents is how much of a run's log a call brings along.
const callEvents = 1000

// invoke calls the function of a run that can move, and carries out what it asks for.
func (w *deliverer) invoke(ctx context.Context, d delivery) error {
	run, err := w.options.Runs.begin(ctx, d)
	if err != nil {
		return err
	}
	call, err := w.options.Runs.call(ctx, d, run)
	if err != nil {
		return err
	}
	// A tenth of the lease is left for carrying out the answer.
	a, err := w.ask(ctx, d, call, w.lease-w.lease/10)
	if err != nil {
		return err
	}
	if !a.ok() {
		return later(d, a.refusal(d.URL), a.retryAfter)
	}
	return w.carryOut(ctx, d, run, a)
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
	return errors.Join(err, verdict)
}

// final reports whether an answer that failed in this way fails every time.
func final(err error) bool {
	refused := (*eventlog.RefusedError)(nil)
	return over(err) || errors.As(err, &refused) || errors.Is(err, entities.ErrInvalid) || errors.Is(err, errNothingLeft)
}

// later is a failure that is tried again after its backoff, and not before the function wants it.
func later(d delivery, err error, notBefore time.Duration) error {
	f := failureOf(d, err)
	f.after = max(f.after, notBefore)
	return &laterError{f}
}

// call is the invocation of a run's function.
func (r *Runs) call(ctx context.Context, d delivery, run entities.Run) (contract.Call, error) {
	page, err := r.log.Events(ctx, d.Project, run.ID, entities.Page{Limit: callEvents}, eventlog.WithPayloads)
	if err != nil {
		return contract.Call{}, err
	}
	c := contract.Call{
		Type: contract.TypeWorkflow, Invocation: d.Lease, Attempt: d.DeliveryCount, Run: contract.About(run),
		Events: make([]json.RawMessage, len(page.Events)),
	}
	for i, e := range page.Events {
		if c.Events[i], err = json.Marshal(showEvent(e)); err != nil {
			return contract.Call{}, fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
	}
	c.Run.Input = page.Events[0].Payload
	if page.More {
		c.After = &page.Events[len(page.Events)-1].Seq
	}
	return c, nil
}

// showEvent is the event as calls have it.
func showEvent(e entities.Event) any {
	return struct {
		RunID         entities.RunID     `json:"runId"`
		Seq           int64              `json:"seq"`
		ID            entities.EventID   `json:"id"`
		Type          entities.EventType `json:"type"`
		CorrelationID string             `json:"correlationId,omitempty"`
		CreatedAt     time.Time          `json:"createdAt"`
		Data          entities.EventData `json:"data"`
		Payload       json.RawMessage    `json:"payload,omitempty"`
	}{e.RunID, e.Seq, e.ID(), e.Type, e.CorrelationID, e.CreatedAt, e.Data, e.Payload}
}
