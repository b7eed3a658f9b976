package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// enforceDeadline fails a run that has not ended by its deadline or, if its timeout has a grace, asks it to cancel. A
// flow has one in any case, since what it did would never be undone.
func (e *Engine) enforceDeadline(ctx context.Context, d queue.Delivery) error {
	created, err := e.log.Event(ctx, d.Project, d.RunID, 1)
	if err != nil {
		return err
	}
	grace := time.Duration(created.Data.TimeoutGraceMS) * time.Millisecond
	if grace == 0 && d.IsFlow() {
		grace = flow.DefaultGrace
	}
	return e.finish(ctx, d, contract.Late(grace))
}

// cancel asks a child run to cancel for its parent, or ends a run whose grace is over.
func (e *Engine) cancel(ctx context.Context, d queue.Delivery) error {
	if d.Subject == "" {
		r, now := contract.EndAsAsked(), e.log.Now()
		r.Data.ForcedAt = &now
		return e.finish(ctx, d, r)
	}
	grace, err := time.ParseDuration(d.Subject)
	if err != nil {
		return fmt.Errorf("decode grace: %w", err)
	}
	run, err := store.RunByID(ctx, pg.NewPool(e.pool), d.Project, d.RunID)
	if err != nil {
		return err
	}
	if !run.Status.Ended() {
		r := eventlog.Request{
			Type: entities.EventRunCancelled, Grace: grace, SpecVersion: entities.SpecDriven,
			Data: entities.EventData{Reason: string(d.Body)},
		}
		if grace > 0 {
			r.Type = entities.EventCancelRequested
		}
		_, err = e.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{r}, e.endWith(d))
		if !errors.Is(err, entities.ErrConflict) {
			return err
		}
		// It has ended meanwhile, and may go on as another run.
		if run, err = store.RunByID(ctx, pg.NewPool(e.pool), d.Project, d.RunID); err != nil {
			return err
		}
	}
	if run.ContinuedAs != "" {
		_, _, err = e.log.Cancel(ctx, d.Project, eventlog.Request{
			RunID: run.ID, Grace: grace, Data: entities.EventData{Reason: string(d.Body)},
		})
		if err != nil {
			return err
		}
	}
	return d.End(ctx)
}
