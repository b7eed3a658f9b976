package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// lateAnswers is how long the answer to a step's call may take after the end of the run. It is recorded then. The end
// does not wait for it. After that time the connection is closed, which tells the function to stop.
const lateAnswers = 5 * time.Second

// awaitLateAnswer returns as soon as the answer to the call of a step that is over does not matter any more.
func (e *Engine) awaitLateAnswer(ctx context.Context, d queue.Delivery) error {
	run, err := store.RunByID(context.WithoutCancel(ctx), pg.NewPool(e.pool), d.Project, d.RunID)
	if err != nil || !run.Status.Ended() {
		return errStepOver // the run goes on without the step
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.lateAnswers):
		return errStepOver
	}
}

// isRefusedResult reports whether the result of a step was refused because it has one, or the run has ended.
func isRefusedResult(err error) bool {
	return queue.IsOver(err) || errors.Is(err, entities.ErrConflict)
}

// recordLateAnswer records the answer of a step's function that was refused, if it came after the end of the run. What
// it would have written to the run's store is not written, and it is followed by no other attempt. If the refusal
// stands, it is the error.
func (e *Engine) recordLateAnswer(ctx context.Context, d queue.Delivery, s stepWork, v decision, refusal error) error {
	if v.event == entities.EventStepRetrying {
		v.event = entities.EventStepFailed
	}
	v.store = nil
	requests := s.results(v, e.log.Now())
	var final error
	err := queue.Persist(ctx, func(ctx context.Context) error {
		if final = e.recordLate(ctx, d.Project, requests[0], d.RunID, refusal); isRefusedResult(final) {
			return nil
		}
		return final
	})
	return cmp.Or(err, final)
}

// recordLate records a result that was refused, if the run has ended and the step has no result but its cancellation.
// It is in the log then and starts nothing. Otherwise the refusal stands.
func (e *Engine) recordLate(
	ctx context.Context, project entities.Project, r eventlog.Request, runID entities.RunID, refusal error,
) error {
	for {
		found, err := e.log.Step(ctx, project, runID, entities.StepID(r.CorrelationID))
		if err != nil {
			return err
		}
		if !found.Run.Status.Ended() {
			return refusal
		}
		if known, err := e.hasResult(ctx, project, found); known || err != nil {
			return cmp.Or(err, refusal)
		}
		r.Data.Late, r.KnownSeq = true, found.Run.LastSeq
		_, err = e.log.AppendAll(ctx, project, runID, []eventlog.Request{r}, eventlog.AppendOptions{})
		if !errors.Is(err, entities.ErrConflict) { // else another result has come meanwhile, perhaps of another step
			return err
		}
	}
}

// hasResult reports whether a step of a run that has ended has a result of its own: one before the end that is no
// cancellation, or one that came late.
func (e *Engine) hasResult(ctx context.Context, project entities.Project, s read.StepState) (bool, error) {
	if s.CompletedAt != nil {
		end, err := e.log.Event(ctx, project, s.Run.ID, s.ResultSeq)
		if err != nil || !end.Data.Cancelled {
			return err == nil, err
		}
	}
	after := pg.Page{Limit: 1, Cursor: read.EventCursorAt(s.Run.EndSeq)}
	late, err := e.log.EventsByCorrelation(ctx, project, s.Run.ID, string(s.ID), after, read.WithoutPayloads)
	return len(late.Events) > 0, err
}
