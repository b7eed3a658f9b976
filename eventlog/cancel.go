package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrGraceUnsupported means that a run cannot be asked to cancel, since its functions do not know such requests.
var ErrGraceUnsupported = errors.New("the Workflow SDK drives the run, and its functions cannot be asked to cancel: " +
	"cancel it without a grace")

// Cancel ends a run with a run_cancelled or, if the request has a grace, asks it to end by itself with a
// cancel_requested, after which it is ended when the grace is over. The event has the fields of the request except for
// its type and version. A run that has not started has nothing to undo: it ends at once. So does a run that was asked
// before and has no more time left than the grace: then nothing changes.
//
// Of a run that has continued as others, the last of these is meant. Cancel returns the run, and reports whether this
// call changed it; a run that has already ended is not an error. It
// fails with [entities.ErrRunNotFound], with [ErrGraceUnsupported], and as [Log.Append] does with
// [entities.ErrInvalid].
func (l *Log) Cancel(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	run, err := store.RunByID(ctx, pg.NewPool(l.pool), project, r.RunID)
	if err != nil {
		return run, false, err
	}
	if run.ContinuedAs != "" {
		return l.cancelNext(ctx, project, r)
	}
	if run.Status.Ended() {
		return run, false, l.whenDurable(ctx, nil)
	}
	r.Type, r.SpecVersion = entities.EventRunCancelled, run.SpecVersion
	if r.Grace > 0 {
		r.Type = entities.EventCancelRequested
	}
	appended, err := l.Append(ctx, project, r)
	if err == nil && (appended.Repeated || appended.Run.ForcedAt != nil && !appended.Run.Status.Ended()) {
		return appended.Run, !appended.Repeated, nil
	}
	if err == nil && appended.Run.EndSeq == appended.Event.Seq {
		return appended.Run, true, nil
	}
	if err != nil && !errors.Is(err, entities.ErrConflict) {
		return run, false, err
	}
	run, err = store.RunByID(ctx, pg.NewPool(l.pool), project, r.RunID) // the run has ended meanwhile
	if err == nil && run.ContinuedAs != "" {
		return l.cancelNext(ctx, project, r)
	}
	return run, false, err
}

// cancelNext cancels the run that goes on with the work of another one.
func (l *Log) cancelNext(ctx context.Context, project entities.Project, r Request) (entities.Run, bool, error) {
	last, err := store.InChain(ctx, pg.NewPool(l.pool), project, r.RunID, "")
	if err != nil {
		return entities.Run{}, false, err
	}
	if last == r.RunID { // the next one was deleted
		run, err := store.RunByID(ctx, pg.NewPool(l.pool), project, last)
		return run, false, err
	}
	r.RunID = last
	return l.Cancel(ctx, project, r)
}

// resolveCancel returns the request that a request to cancel, or to end a run as it was asked to, amounts to in the
// run's current state. It returns other requests unchanged.
func (f facts) resolveCancel(r *Request, at time.Time) (*Request, error) {
	switch {
	case f.Run == nil:
		return r, nil
	case r.Type == entities.EventCancelRequested && !f.Run.Status.Ended():
		return f.askToCancel(r, at)
	case r.AsAsked, r.Continue != nil && f.Run.ForcedAt != nil: // a run that has not begun has nothing to undo
		return f.endAsAsked(r)
	default:
		return r, nil
	}
}

// askToCancel sets when a run that is asked to cancel is ended. Of several requests, the one with the earliest end
// counts.
func (f facts) askToCancel(r *Request, at time.Time) (*Request, error) {
	if f.Run.Driver != entities.DriverServer {
		return r, fmt.Errorf("run %s: %w", r.RunID, ErrGraceUnsupported)
	}
	if f.Run.Status == entities.RunPending {
		return r.asEnd(r.Data), nil
	}
	forcedAt := at.Add(r.Grace).Truncate(time.Millisecond)
	if f.Run.ForcedAt != nil && !forcedAt.Before(*f.Run.ForcedAt) {
		return r, errRepeated
	}
	asked := *r
	asked.Data.ForcedAt, asked.Payload = &forcedAt, nil
	return &asked, nil
}

// endAsAsked makes the request end the run for the reason for which it was asked to cancel.
func (f facts) endAsAsked(r *Request) (*Request, error) {
	if f.Run.Status.Ended() {
		return r, r.conflict(string(f.Run.Status))
	}
	if f.earlier == nil {
		return r, entities.Invalid("nobody has asked run %s to cancel: end it with complete or fail", r.RunID)
	}
	return r.asEnd(f.earlier.Data), nil
}

// asEnd returns the request as one that ends the run as somebody asked for: as cancelled or, if its timeout asked, as
// failed.
func (r *Request) asEnd(asked entities.EventData) *Request {
	end := *r
	end.Continue = nil
	if asked.ErrorCode != "" {
		end.Type = entities.EventRunFailed
		end.Data = entities.EventData{ErrorCode: asked.ErrorCode, ForcedAt: r.Data.ForcedAt}
		return &end
	}
	end.Type, end.Payload = entities.EventRunCancelled, nil
	end.Data = entities.EventData{Reason: asked.Reason, ForcedAt: r.Data.ForcedAt}
	return &end
}

// openChild returns the child run that a request to cancel a step is about, if the child has not ended. The step is
// left open: it ends with the child.
func (f facts) openChild(r *Request) (entities.RunID, bool) {
	created := f.history.first(r.CorrelationID, entities.EventStepCreated)
	if !r.Data.Cancelled || created == nil || created.Data.Step == nil || created.Data.Step.ChildID == "" {
		return "", false
	}
	return created.Data.Step.ChildID, f.Steps[entities.StepID(r.CorrelationID)].CompletedAt == nil
}

// cancelChild returns the message that asks a child to cancel. The parent must not lock the child while it holds its
// own lock. Each grace is a piece of work of its own, so that a shorter one is not lost.
func cancelChild(parent *entities.Run, child entities.RunID, r *Request) message.Message {
	m := work(parent, message.WorkCancel, r.Grace.String())
	m.RunID, m.Body = child, []byte(r.Data.Reason)
	return m
}
