package engine

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// report completes or fails the parent's step that waits for a child, once the child has ended.
func (e *Engine) report(ctx context.Context, d queue.Delivery) error {
	s, err := e.loadStep(ctx, d)
	if errors.Is(err, entities.ErrStepNotFound) {
		return d.End(ctx)
	}
	if err != nil {
		return err
	}
	child, err := store.RunByID(ctx, pg.NewPool(e.pool), d.Project, s.spec.ChildID)
	if errors.Is(err, entities.ErrRunNotFound) || child.ContinuedAs != "" {
		child, err = store.LastChild(ctx, pg.NewPool(e.pool), d.RunID, entities.StepID(d.Subject))
	}
	if errors.Is(err, entities.ErrRunNotFound) { // it ended, and retention deleted it before this report
		r := s.request(entities.EventStepFailed)
		r.Payload = contract.Payload("run "+string(s.spec.ChildID)+" was deleted", CodeChildFailed)
		r.Data.ErrorCode = CodeChildFailed
		return e.finish(ctx, d, r)
	}
	if err != nil {
		return err
	}
	end, err := e.log.Event(ctx, d.Project, child.ID, child.EndSeq)
	if err != nil {
		return err
	}
	unreadable, err := e.unreadable(ctx, s.run, end)
	if err != nil {
		return err
	}
	r := s.request(entities.EventStepFailed)
	switch child.Status {
	case entities.RunCompleted:
		if r.Type, r.Payload = entities.EventStepCompleted, end.Payload; unreadable != nil {
			r.Type, r.Payload, r.Data.ErrorCode = entities.EventStepFailed, unreadable.Text(), unreadable.Code
		}
	case entities.RunFailed:
		r.Payload, r.Data.ErrorCode = end.Payload, CodeChildFailed
	default:
		r.Payload = contract.Payload("run "+string(child.ID)+" was cancelled", CodeChildCancelled)
		r.Data.ErrorCode = CodeChildCancelled
	}
	return e.finish(ctx, d, r)
}

// unreadable returns why a run cannot read the payload of an event; nil if it can, or is not that of a flow.
func (e *Engine) unreadable(ctx context.Context, run entities.Run, of entities.Event) (*contract.Failure, error) {
	shown := view.Of(&of)
	f := flow.Event{Encoding: shown.Encoding, Truncated: shown.Truncated}.Unreadable()
	if f == nil {
		return nil, nil //nolint:nilnil // it can be read
	}
	isFlow, err := e.isFlow(ctx, run.Project, run.DeploymentID)
	if !isFlow {
		f = nil
	}
	return f, err
}

// finish appends an event and ends the work in one transaction. If the event conflicts, because its step or run has a
// result already, finish only ends the work.
func (e *Engine) finish(ctx context.Context, d queue.Delivery, r eventlog.Request) error {
	r.SpecVersion = entities.SpecDriven
	_, err := e.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{r}, e.endWith(d))
	if errors.Is(err, entities.ErrConflict) {
		return d.End(ctx)
	}
	return err
}

const (
	// childrenBatch is the number of children read at once, and childrenAtOnce how many of them are cancelled at once.
	childrenBatch  = 500
	childrenAtOnce = 32
)

// endChildren cancels the children of an ended run, except those started with onParentEnd: leave.
func (e *Engine) endChildren(ctx context.Context, d queue.Delivery) error {
	for {
		children, err := store.OpenChildren(ctx, pg.NewPool(e.pool), d.RunID, childrenBatch)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			return d.End(ctx)
		}
		var all errgroup.Group
		all.SetLimit(childrenAtOnce)
		for _, id := range children {
			all.Go(func() error {
				return rescue.Do(ctx, "end child", func() error { return e.endChild(ctx, d, id) })
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
}

// endChild cancels a child of an ended run, if it has not ended.
func (e *Engine) endChild(ctx context.Context, d queue.Delivery, id entities.RunID) error {
	_, err := e.log.Append(ctx, d.Project, eventlog.Request{
		RunID: id, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven, ParentEnded: true,
		Data: entities.EventData{Reason: "run " + string(d.RunID) + ", which started it, has ended"},
	})
	if errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrRunNotFound) {
		return nil
	}
	return err
}
