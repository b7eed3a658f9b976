package queue

import (
	"context"
	"errors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// enforceDeadline fails a run that has not ended in time.
func (w *deliverer) enforceDeadline(ctx context.Context, d delivery) error {
	return w.finish(ctx, d, eventlog.Request{
		Type: entities.EventRunFailed, SpecVersion: entities.SpecDriven, Data: entities.EventData{ErrorCode: CodeTimeout},
		Payload: contract.Payload("the run did not end in time", CodeTimeout),
	})
}

// report tells a run how the child ended that one of its steps waits for.
func (w *deliverer) report(ctx context.Context, d delivery) error {
	s, err := w.options.Runs.step(ctx, d)
	if errors.Is(err, entities.ErrStepNotFound) {
		return w.drop(ctx, d)
	}
	if err != nil {
		return err
	}
	child, err := store.RunByID(ctx, w.queue.pool, d.Project, s.spec.ChildID)
	if errors.Is(err, entities.ErrRunNotFound) { // it has ended, and left by its age before anybody heard of it
		r := s.request(entities.EventStepFailed)
		r.Payload = contract.Payload("run "+string(s.spec.ChildID)+" is gone", CodeChildFailed)
		r.Data.ErrorCode = CodeChildFailed
		return w.finish(ctx, d, r)
	}
	if err != nil {
		return err
	}
	end, err := w.options.Runs.log.Event(ctx, d.Project, child.ID, child.EndSeq)
	if err != nil {
		return err
	}
	r := s.request(entities.EventStepFailed)
	switch child.Status {
	case entities.RunCompleted:
		r.Type, r.Payload = entities.EventStepCompleted, end.Payload
	case entities.RunFailed:
		r.Payload, r.Data.ErrorCode = end.Payload, CodeChildFailed
	default:
		r.Payload = contract.Payload("run "+string(child.ID)+" was cancelled", CodeChildCancelled)
		r.Data.ErrorCode = CodeChildCancelled
	}
	return w.finish(ctx, d, r)
}

// finish appends an event and ends the work in one transaction. What is too late is not needed.
func (w *deliverer) finish(ctx context.Context, d delivery, r eventlog.Request) error {
	_, err := w.options.Runs.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{r}, d.lastTurn())
	if errors.Is(err, entities.ErrConflict) {
		return w.drop(ctx, d)
	}
	return err
}

// childrenBatch is how many children are looked for at once.
const childrenBatch = 100

// endChildren cancels the children of a run that has ended, but for those that may go on.
func (w *deliverer) endChildren(ctx context.Context, d delivery) error {
	for {
		children, err := store.OpenChildren(ctx, w.queue.pool, d.RunID, childrenBatch)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			return w.drop(ctx, d)
		}
		for _, id := range children {
			_, err := w.options.Runs.log.Append(ctx, d.Project, eventlog.Request{
				RunID: id, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven,
				Data: entities.EventData{Reason: "run " + string(d.RunID) + ", which started it, has ended"},
			})
			if err != nil && !errors.Is(err, entities.ErrConflict) && !errors.Is(err, entities.ErrRunNotFound) {
				return err
			}
		}
	}
}
