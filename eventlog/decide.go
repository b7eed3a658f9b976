package eventlog

import (
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// facts is what a decision is made from: what was read under the run's lock.
type facts struct {
	*Snapshot
	// claimed says that the log has a hook_created, hook_conflict or attr_set of this correlation ID.
	claimed bool
	// holder is the live hook that holds the token a hook_created asks for; nil when the token is free.
	holder *entities.Hook
}

// errRepeat: the request is already so. The answer is success, and nothing is written.
var errRepeat = errors.New("already so")

// decide is the whole judgement on a request: the events to append, or why not. It is pure; at is the
// transaction's time.
func decide(f facts, r Request, at time.Time) ([]entities.Event, error) {
	if f.Run == nil && r.createsRun() {
		if err := creation(r, at); err != nil {
			return nil, err
		}
		return []entities.Event{creationEvent(r, at), startedEvent(r, 2, at)}, nil
	}
	if err := f.permit(r); err != nil {
		return nil, err
	}
	e := f.next(r, at)
	switch r.Type {
	case entities.EventRunStarted:
		return []entities.Event{startedEvent(r, e.Seq, at)}, nil
	case entities.EventStepStarted:
		if step := f.Steps[entities.StepID(r.CorrelationID)]; step.RetryAfter != nil && step.RetryAfter.After(at) {
			return nil, &entities.NotYetError{StepID: step.ID, RetryAfter: step.RetryAfter.Sub(at)}
		}
		e.Payload = nil // the input is in step_created
	case entities.EventHookCreated:
		if f.holder != nil {
			e.Type, e.Extra, e.Payload = entities.EventHookConflict, nil, nil
			e.Data = entities.EventData{Token: r.Data.Token, ConflictingRunID: f.holder.RunID}
		}
	case entities.EventAttrSet:
		if f.claimed {
			return nil, &entities.TransitionError{
				Kind: entities.KindRun, ID: string(r.RunID), Status: string(f.Run.Status), Event: r.Type,
				Refusal: entities.Conflict,
			}
		}
		if _, err := entities.MergeAttributes(f.Run.Attributes, r.Data.Changes, r.AllowReserved); err != nil {
			return nil, err
		}
	default: // the tables have said it all
	}
	return []entities.Event{e}, nil
}

// permit asks the transition tables.
func (f facts) permit(r Request) error {
	if f.Run == nil {
		// run_created is the one event a run need not exist for.
		return next(entities.Runs, entities.KindRun, string(r.RunID), entities.RunNone, runEvent(r.Type))
	}
	id, ended := r.CorrelationID, f.Run.Status.Ended()
	switch kind := entities.KindOf(r.Type); kind {
	case entities.KindStep:
		return next(table(ended, entities.Steps, entities.StepsAfterEnd), kind, id, f.stepStatus(r), r.Type)
	case entities.KindHook:
		return next(table(ended, entities.Hooks, entities.HooksAfterEnd), kind, id, f.hookStatus(r), r.Type)
	case entities.KindWait:
		return next(table(ended, entities.Waits, entities.WaitsAfterEnd), kind, id, f.waitStatus(r), r.Type)
	default:
		return next(entities.Runs, kind, string(r.RunID), f.Run.Status, r.Type)
	}
}

// runEvent is what an event means to a run that is not there: anything but its creation is missing it.
func runEvent(t entities.EventType) entities.EventType {
	if t == entities.EventRunCreated {
		return t
	}
	return entities.EventRunStarted
}

func table[S ~string](ended bool, alive, afterEnd entities.Table[S]) entities.Table[S] {
	if ended {
		return afterEnd
	}
	return alive
}

func next[S ~string](t entities.Table[S], kind, id string, status S, event entities.EventType) error {
	_, err := t.Next(kind, id, status, event)
	var refused *entities.TransitionError
	if errors.As(err, &refused) && refused.Refusal == entities.Repeat {
		return errRepeat
	}
	return err
}

func (f facts) stepStatus(r Request) entities.StepStatus {
	if step, ok := f.Steps[entities.StepID(r.CorrelationID)]; ok {
		return step.Status
	}
	return entities.StepNone
}

func (f facts) hookStatus(r Request) entities.HookStatus {
	if _, ok := f.Hooks[entities.HookID(r.CorrelationID)]; ok {
		return entities.HookActive
	}
	if f.claimed {
		return entities.HookDisposed
	}
	return entities.HookNone
}

func (f facts) waitStatus(r Request) entities.WaitStatus {
	if wait, ok := f.Waits[entities.WaitID(r.CorrelationID)]; ok {
		return wait.Status
	}
	return entities.WaitNone
}

// next is the event the request asks for, at the next position of the log.
func (f facts) next(r Request, at time.Time) entities.Event {
	seq := int64(1)
	if f.Run != nil {
		seq = f.Run.LastSeq + 1
	}
	return entities.Event{
		RunID: r.RunID, Seq: seq, Type: r.Type, CorrelationID: r.CorrelationID, SpecVersion: r.SpecVersion,
		CreatedAt: at, OccurredAt: r.OccurredAt, Data: r.Data, Extra: r.Extra, Payload: r.Payload,
	}
}

// creationEvent is the run_created that a run_started with creation data makes up for.
func creationEvent(r Request, at time.Time) entities.Event {
	e := facts{Snapshot: &Snapshot{}}.next(r, at)
	e.Type = entities.EventRunCreated
	return e
}

// startedEvent is a run_started, which never carries data: what came along was for creating the run.
func startedEvent(r Request, seq int64, at time.Time) entities.Event {
	return entities.Event{
		RunID: r.RunID, Seq: seq, Type: entities.EventRunStarted, SpecVersion: r.SpecVersion,
		CreatedAt: at, OccurredAt: r.OccurredAt,
	}
}
