package triggers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/condition"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// conditionsWait is how long work waits for the slot of its project to evaluate conditions, before its delivery ends.
const conditionsWait = 10 * time.Second

// AcquireConditions waits for the slot of the project to evaluate conditions. If others of the project take too long,
// it fails without counting as a delivery.
func AcquireConditions(
	ctx context.Context, c *condition.Conditions, project entities.Project,
) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, conditionsWait)
	defer cancel()
	release, err = c.Acquire(waiting, project)
	if err != nil && ctx.Err() == nil {
		const reason = "timed out waiting for the conditions of the project's other signals"
		return nil, &queue.Failure{Reason: reason, Public: reason, After: time.Second}
	}
	return release, err
}

// matches reports whether the condition of a trigger is true of an event, and why not. The caller must have the
// slot of its project.
func (t *Triggers) matches(
	ctx context.Context, trg trigger.Trigger, v condition.Variables,
) (ok bool, reason string, err error) {
	ok, err = t.conditions.Matches(ctx, trg.Condition, v)
	switch {
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	case ok:
		return true, "", nil
	case err != nil:
		return false, queue.Storable(err.Error()), nil // it may quote the event
	}
	if part := t.conditions.Explain(ctx, trg.Condition, v); part != "" {
		return false, fmt.Sprintf("the condition is false: %s", part), nil
	}
	return false, "the condition is false", nil
}

// evaluate waits for the slot of the project and decodes an event, of which matches then says whether the condition is
// true.
func (t *Triggers) evaluate(
	ctx context.Context, trg trigger.Trigger, data []byte, v condition.Variables,
) (ok bool, reason string, err error) {
	if trg.Condition == "" {
		return true, "", nil
	}
	release, err := AcquireConditions(ctx, t.conditions, trg.Project)
	if err != nil {
		return false, "", err
	}
	defer release()
	if v.Data, err = condition.Decode(data); err != nil {
		return false, "", err
	}
	return t.matches(ctx, trg, v)
}

// fill waits for the slot of the project and returns a trigger with values of an event in what it starts. It fails with
// an *[entities.FieldError] if the event does not have them.
func (t *Triggers) fill(ctx context.Context, trg trigger.Trigger, e event) (trigger.Trigger, error) {
	if !hasExpressions(trg.Spec) {
		return trg, nil
	}
	release, err := AcquireConditions(ctx, t.conditions, trg.Project)
	if err != nil {
		return trg, err
	}
	defer release()
	values := flow.Values{Data: e.data, Signal: e.signal, Run: e.run}
	if trg.Input, err = flow.Fill(trg.Input, values); err != nil {
		return trg, &entities.FieldError{Field: "start.input", Err: err}
	}
	if err := trg.EachText(func(text string) (string, error) { return flow.FillText(text, values) }); err != nil {
		return trg, err
	}
	return trg, trg.Validate()
}

// hasExpressions reports whether a start has values of the event.
func hasExpressions(s trigger.Spec) bool {
	found := bytes.Contains(s.Input, []byte("${"))
	_ = s.EachText(func(text string) (string, error) {
		found = found || strings.Contains(text, "${")
		return text, nil
	})
	return found
}

// dispatched is the progress of a signal's work after its triggers.
var dispatched = []byte("{}")

// Signal leaves work for each trigger that waits for a signal and whose condition is true of it, in one transaction
// with the note that this is done. The delivery is of the signal's work. What the others have not started is recorded.
func (t *Triggers) Signal(ctx context.Context, d queue.Delivery, s store.Signal) error {
	return untilUnchanged(func() error {
		list, err := trigger.For(ctx, pg.NewPool(t.pool), s.Project, trigger.KindSignal, s.Name)
		if err != nil {
			return err
		}
		work, skipped, err := t.sift(ctx, list, s)
		if err != nil {
			return err
		}
		return pg.InTxThen(ctx, t.pool, func(tx pgx.Tx) (func(error), error) {
			var b pgx.Batch
			lease := d.Guard(&b)
			if err := pg.SendQueued(ctx, tx, &b); err != nil {
				return nil, err
			}
			if err := lease.Check(); err != nil {
				return nil, err
			}
			for _, r := range skipped {
				trigger.Record(&b, r.trigger, r.event)
			}
			d.AdvanceIn(&b, dispatched)
			_, ended, err := t.queue.Enqueue(ctx, tx, &b, work)
			return ended, err
		})
	})
}

// recorded is what became of an event of a trigger.
type recorded struct {
	trigger trigger.Trigger
	event   trigger.Event
}

// sift evaluates the conditions of triggers. It returns the work for those that match a signal, and what to record
// about the others.
func (t *Triggers) sift(
	ctx context.Context, list []trigger.Trigger, s store.Signal,
) (work []message.Message, skipped []recorded, err error) {
	release, err := AcquireConditions(ctx, t.conditions, s.Project)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	value, err := condition.Decode(s.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("signal %s: %w", s.ID, err)
	}
	for _, trg := range list {
		ok, reason, err := t.matches(ctx, trg, condition.Variables{Data: value, SignalName: s.Name, SignalID: s.ID})
		if err != nil {
			return nil, nil, err
		}
		if ok {
			cause := trigger.Cause{ID: string(s.ID), Root: s.RootID, Depth: s.Depth}
			work = append(work, message.Message{
				Project: s.Project, Topic: trg.Name, Work: message.WorkTrigger,
				Subject: trigger.Subject(trg.ID, cause.String()+" "+s.Name), Body: s.Data,
			})
			continue
		}
		skipped = append(skipped, recorded{trg, trigger.Event{
			Event: string(s.ID), Decision: trigger.Skipped, Reason: reason, DecidedAt: t.log.Now(),
		}})
	}
	return work, skipped, nil
}

// changed is why a trigger skips an event for which it has waited.
const changed = "the trigger waits for something else by now"

// Handle does [message.WorkTrigger]: it starts the run of a trigger for a signal, which is the body, or for the end of
// a run.
func (t *Triggers) Handle(ctx context.Context, d queue.Delivery) error {
	id, eventID := trigger.ParseSubject(d.Subject)
	eventID, signal, _ := strings.Cut(eventID, " ") // old work has no name of its signal
	cause := trigger.ParseCause(eventID)
	eventID = cause.ID
	return untilUnchanged(func() error {
		trg, err := trigger.ByID(ctx, pg.NewPool(t.pool), d.Project, id)
		if errors.Is(err, trigger.ErrNotFound) {
			return d.End(ctx)
		}
		if err != nil {
			return err
		}
		e, reason := event{id: eventID, data: d.Body, root: cause.Root, below: cause.Depth}, ""
		switch {
		case trg.PausedAt != nil:
			reason = "the trigger was paused"
		case len(d.Body) == 0:
			e, reason, err = t.runEnded(ctx, trg, entities.RunID(eventID))
		case trg.Kind != trigger.KindSignal, signal != "" && signal != trg.Source:
			reason = changed
		default:
			v := condition.Variables{SignalName: trg.Source, SignalID: store.SignalID(eventID)}
			if _, reason, err = t.evaluate(ctx, trg, d.Body, v); err == nil {
				e.signal, err = json.Marshal(map[string]string{"name": trg.Source, "id": eventID})
			}
		}
		switch {
		case err != nil:
			return err
		case reason != "":
			_, err = t.record(ctx, trg, trigger.Event{Event: eventID, Decision: trigger.Skipped, Reason: reason}, byDelivery(d))
		default:
			_, err = t.start(ctx, trg, e, byDelivery(d))
		}
		return err
	})
}

// endedRun is what a trigger knows of a run that has ended.
type endedRun struct {
	RunID      entities.RunID     `json:"runId"`
	Workflow   string             `json:"workflow"`
	Status     entities.RunStatus `json:"status"`
	Attributes map[string]string  `json:"attributes"`
	ErrorCode  string             `json:"errorCode,omitempty"`
	// Only runs that the server continues have these: clients encode them in ways of their own.
	Output json.RawMessage `json:"output,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// runEnded returns the end of a run as an event, or why the trigger skips it.
func (t *Triggers) runEnded(
	ctx context.Context, trg trigger.Trigger, id entities.RunID,
) (e event, reason string, err error) {
	q := pg.NewPool(t.pool)
	run, err := store.RunByID(ctx, q, trg.Project, id)
	if errors.Is(err, entities.ErrRunNotFound) {
		return e, "the run was deleted before", nil
	}
	if err != nil {
		return e, "", err
	}
	if trg.Kind != trigger.KindRunEnded || trg.Source != run.WorkflowName || !slices.Contains(trg.Statuses, run.Status) {
		return e, changed, nil
	}
	end, err := t.log.Event(ctx, trg.Project, id, run.EndSeq)
	if err != nil {
		return e, "", err
	}
	depth, err := trigger.Depth(ctx, q, id)
	if err != nil {
		return e, "", err
	}
	v := endedRun{
		RunID: id, Workflow: run.WorkflowName, Status: run.Status, Attributes: run.Attributes, ErrorCode: run.ErrorCode,
	}
	if run.Driver == entities.DriverServer && json.Valid(end.Payload) {
		if run.Status == entities.RunCompleted {
			v.Output = end.Payload
		} else {
			v.Error = end.Payload
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return e, "", fmt.Errorf("encode end of run %s: %w", id, err)
	}
	about, err := json.Marshal(map[string]any{"id": id, "attributes": run.Attributes})
	if err != nil {
		return e, "", fmt.Errorf("encode run %s: %w", id, err)
	}
	_, reason, err = t.evaluate(ctx, trg, data, condition.Variables{RunID: id, Attributes: run.Attributes})
	root, below := run.Descend()
	if run.ID == root && run.Status == entities.RunCancelled {
		root, below = "", 0 // what was to happen after the cancellation is no part of the tree that this has closed
	}
	return event{id: string(id), data: data, run: about, depth: depth + 1, root: root, below: below}, reason, err
}

// Request is a request to the webhook of a trigger.
type Request struct {
	// ID is the same for all retries of a delivery. Digest must be the same too, unless it is empty.
	ID, Digest string
	// Payload is the request as JSON.
	Payload []byte
}

// Receive starts the run of a request to the webhook of a trigger, and returns what became of it. It fails with
// [trigger.ErrNotFound] if the trigger is gone or paused by now, and with [entities.ErrKeyReused] if an earlier request
// had the same ID and another digest.
func (t *Triggers) Receive(ctx context.Context, trg trigger.Trigger, r Request) (done trigger.Event, err error) {
	err = untilUnchanged(func() error {
		ok, reason, err := t.evaluate(ctx, trg, r.Payload, condition.Variables{})
		if err != nil {
			return err
		}
		if ok {
			done, err = t.start(ctx, trg, event{id: r.ID, data: r.Payload, digest: r.Digest}, byRequest())
		} else {
			done, err = t.record(ctx, trg, trigger.Event{Event: r.ID, Decision: trigger.Skipped, Reason: reason}, byRequest())
		}
		if isChanged(err) {
			trg, err = trigger.ByToken(ctx, pg.NewPool(t.pool), trg.Project, trg.Source)
			if err == nil {
				err = trigger.ErrChanged
			}
		}
		return err
	})
	return done, err
}
