package eventlog

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// errRepeat: the request is already so. The answer is success, and nothing is written.
var errRepeated = errors.New("already so")

// decide is the whole judgement on a request: the events to append, or why not. It is pure; at is the
// transaction's time.
func decide(f facts, r Request, at time.Time) ([]entities.Event, error) {
	if f.Run == nil && r.createsRun() {
		return startNewRun(r, at)
	}
	if r.Once && f.done(r) {
		return nil, f.repeats(r)
	}
	if r.createsStep() {
		return f.startNewStep(r, at)
	}
	if r.Type == entities.EventHookReceived && f.Run != nil && f.earlier != nil {
		return nil, f.resumedBefore(r)
	}
	if err := f.permit(r, at); err != nil {
		return nil, err
	}
	return f.outcome(r, at)
}

// outcome is the events of a request that the tables permit, or what is wrong with it that they cannot know.
func (f facts) outcome(r Request, at time.Time) ([]entities.Event, error) {
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
		e = f.contested(e)
	case entities.EventAttrSet:
		if err := f.permitChange(r); err != nil {
			return nil, err
		}
	default: // the tables have said it all
	}
	return []entities.Event{e}, nil
}

// startNewRun is a run_started that makes up for a run_created that got lost.
func startNewRun(r Request, at time.Time) ([]entities.Event, error) {
	if err := creation(r, at); err != nil {
		return nil, err
	}
	return []entities.Event{creationEvent(r, at), startedEvent(r, 2, at)}, nil
}

// contested is a hook_created, or the hook_conflict it becomes when another hook holds the token.
func (f facts) contested(e entities.Event) entities.Event {
	holder := f.holderOf(e.Data.Token)
	if holder == nil || !holder.Holds(e.CreatedAt) {
		return e
	}
	e.Type, e.Extra, e.Payload = entities.EventHookConflict, nil, nil
	e.Data = entities.EventData{Token: e.Data.Token, ConflictingRunID: holder.RunID}
	return e
}

// holderOf is the hook that has the token: another run's, or one that was created just before.
func (f facts) holderOf(token string) *entities.Hook {
	for _, hook := range f.Hooks {
		if hook.Token == token {
			return &hook
		}
	}
	return f.holders[token]
}

// changesNothing reports whether the run has the attributes that the request is to give it.
func (f facts) changesNothing(r Request) bool {
	if f.Run == nil || r.CorrelationID != "" {
		return false
	}
	merged, err := entities.MergeAttributes(f.Run.Attributes, r.Data.Changes, r.Data.AllowReserved)
	return err == nil && maps.Equal(merged, f.Run.Attributes)
}

// repeats judges a request for what is so already: it must not mean something else by the same ID.
func (f facts) repeats(r Request) error {
	if r.Type != entities.EventStepCreated {
		return errRepeated
	}
	if step := f.Steps[entities.StepID(r.CorrelationID)]; step.Name != r.Data.StepName {
		return fmt.Errorf("step %s is %q in the log and cannot become %q: %w",
			step.ID, step.Name, r.Data.StepName, entities.ErrConflict)
	}
	return errRepeated
}

// done reports whether there is what the request asks for, whatever became of it since.
func (f facts) done(r Request) bool {
	switch r.Type {
	case entities.EventRunStarted:
		return f.Run != nil && f.Run.StartedAt != nil && !f.Run.Status.Ended()
	case entities.EventStepCreated:
		_, ok := f.Steps[entities.StepID(r.CorrelationID)]
		return ok
	case entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed:
		return f.Steps[entities.StepID(r.CorrelationID)].CompletedAt != nil
	case entities.EventWaitCreated:
		_, ok := f.Waits[entities.WaitID(r.CorrelationID)]
		return ok
	case entities.EventWaitCompleted:
		return f.Waits[entities.WaitID(r.CorrelationID)].CompletedAt != nil
	case entities.EventHookCreated:
		return f.claimed[r.CorrelationID]
	case entities.EventAttrSet:
		return f.claimed[r.CorrelationID] || f.changesNothing(r)
	case entities.EventHookDisposed:
		_, ok := f.Hooks[entities.HookID(r.CorrelationID)]
		return !ok && f.claimed[r.CorrelationID]
	default:
		return false
	}
}

// permitChange judges an attr_set by the run's attributes, and by its ID, which counts once.
func (f facts) permitChange(r Request) error {
	if r.CorrelationID != "" && f.claimed[r.CorrelationID] {
		return &entities.TransitionError{
			Kind: entities.KindRun, ID: string(r.RunID), Status: string(f.Run.Status), Event: r.Type,
			Refusal: entities.Conflict,
		}
	}
	_, err := entities.MergeAttributes(f.Run.Attributes, r.Data.Changes, r.Data.AllowReserved)
	return err
}

// startNewStep is a step_started that also creates its step: whoever sends it wants to be the only one to run
// it, so that the step must not exist in any state (protocol §3.7).
func (f facts) startNewStep(r Request, at time.Time) ([]entities.Event, error) {
	creation := r
	creation.Type, creation.Extra = entities.EventStepCreated, nil
	creation.Data = entities.EventData{StepName: r.Data.StepName, WorkflowName: r.Data.WorkflowName}
	if err := f.permit(creation, at); err != nil {
		return nil, err
	}
	created, started := f.next(creation, at), f.next(r, at)
	started.Seq, started.Payload = created.Seq+1, nil
	return []entities.Event{created, started}, nil
}

// resumedBefore judges a resumption that is in the log already.
func (f facts) resumedBefore(r Request) error {
	if f.earlier.CorrelationID == r.CorrelationID && f.earlier.Data.ResumeDigest == r.Data.ResumeDigest {
		return errRepeated
	}
	return &entities.TransitionError{
		Kind: entities.KindHook, ID: r.CorrelationID, Status: "resumed otherwise by " + r.Data.ResumeID,
		Event: r.Type, Refusal: entities.Conflict,
	}
}

// permit asks the transition tables.
func (f facts) permit(r Request, at time.Time) error {
	if f.Run == nil {
		// run_created is the one event a run need not exist for.
		return next(entities.Runs, entities.KindRun, string(r.RunID), entities.RunNone, runEvent(r.Type))
	}
	id := r.CorrelationID
	switch kind := r.Type.Kind(); kind {
	case entities.KindStep:
		return next(f.Run.StepTable(), kind, id, f.stepStatus(r), r.Type)
	case entities.KindHook:
		return next(f.Run.HookTable(), kind, id, f.hookStatus(r, at), r.Type)
	case entities.KindWait:
		return next(f.Run.WaitTable(), kind, id, f.waitStatus(r), r.Type)
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

func next[S ~string](t entities.Table[S], kind, id string, status S, event entities.EventType) error {
	_, err := t.Next(kind, id, status, event)
	var refused *entities.TransitionError
	if errors.As(err, &refused) && refused.Refusal == entities.Repeat {
		return errRepeated
	}
	return err
}

func (f facts) stepStatus(r Request) entities.StepStatus {
	if step, ok := f.Steps[entities.StepID(r.CorrelationID)]; ok {
		return step.Status
	}
	return entities.StepNone
}

func (f facts) hookStatus(r Request, at time.Time) entities.HookStatus {
	if hook, ok := f.Hooks[entities.HookID(r.CorrelationID)]; ok {
		if !hook.Holds(at) {
			return entities.HookDisposed
		}
		return entities.HookActive
	}
	if f.claimed[r.CorrelationID] {
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
