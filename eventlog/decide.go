package eventlog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/webhook"
)

// errRepeated reports that the log already records what the request asks for: it succeeds, and nothing is written.
var errRepeated = errors.New("already recorded")

// decide returns the events to append for a request, or the reason of its refusal. It is pure; at is the time of the
// events.
func decide(f facts, r *Request, at time.Time) ([]entities.Event, error) {
	if f.Run == nil && r.createsRun() {
		return createAndStartRun(r, at)
	}
	r, err := f.resolveCancel(r, at)
	if err != nil {
		return nil, err
	}
	if err := f.checkRecorded(r, at); err != nil {
		return nil, err
	}
	if r.createsStep() {
		return f.createAndStartStep(r, at)
	}
	if err := f.checkReceipt(r); err != nil {
		return nil, err
	}
	if r.Data.Late && (f.Run == nil || f.Run.LastSeq != r.KnownSeq) {
		return nil, r.conflict("changed")
	}
	if err := f.checkTransition(r, at); err != nil {
		return nil, err
	}
	return f.permittedEvents(r, at)
}

// checkRecorded returns errRepeated, or the reason of a refusal, if the log has what the request asks for.
func (f facts) checkRecorded(r *Request, at time.Time) error {
	switch {
	case f.markedBy(r) != nil:
		return errRepeated
	case r.Once && f.isRecorded(r):
		return f.checkRepeat(r)
	case r.Inline && r.Type == entities.EventStepRetrying && f.awaitsRetry(r, at):
		return errRepeated
	default:
		return nil
	}
}

// checkReceipt fails if the hook that a hook_received is for has received it already, or has lost its token.
func (f facts) checkReceipt(r *Request) error {
	if r.Type != entities.EventHookReceived || f.Run == nil {
		return nil
	}
	if f.earlierOf(r) != nil {
		return f.checkResumption(r)
	}
	lost := f.history.first(r.CorrelationID, entities.EventHookDisposed)
	if lost != nil && lost.Data.ForceClaimedBy != nil {
		return &entities.HookClaimedError{Hook: entities.HookID(r.CorrelationID), By: *lost.Data.ForceClaimedBy}
	}
	return nil
}

// permittedEvents returns the events of a request that the transition tables permit, or the reason of a refusal that
// depends on more than statuses.
func (f facts) permittedEvents(r *Request, at time.Time) ([]entities.Event, error) {
	events := []entities.Event{f.newEvent(r, at)}
	e := &events[0] // events are large, and are not copied
	e.Data.Step = f.withLimits(r)
	switch {
	case r.First != nil:
		return withFirstAttempt(*e, *r.First), nil
	case r.Continue != nil:
		e.Data.ContinuedAs, e.Payload = r.Continue.Next.RunID, []byte("null")
	case r.refused != nil:
		return withRefusedStart(*e, r.refused)
	case r.Output != nil:
		return withOutput(*e, r.Output), nil
	case r.Inline && f.lacksStart(r):
		started := startOf(*e)
		e.Seq++
		return []entities.Event{started, *e}, nil
	default:
		if err := f.checkEvent(r, e, at); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// checkEvent checks the event of a request that is its event alone, and makes it what is appended.
func (f facts) checkEvent(r *Request, e *entities.Event, at time.Time) error {
	switch r.Type {
	case entities.EventRunStarted:
		if f.waits {
			return &waitsError{r.RunID} // for slots of limits
		}
		*e = startedEvent(r, e.Seq, at)
	case entities.EventStepStarted:
		step := f.Steps[entities.StepID(r.CorrelationID)]
		early := step.RetryAfter != nil && step.RetryAfter.After(at)
		if early && !r.Early && !f.Run.Fenced() { // else its client knows when
			return &entities.NotYetError{StepID: step.ID, RetryAfter: step.RetryAfter.Sub(at)}
		}
		e.Payload = nil // the input is in step_created
	case entities.EventHookCreated:
		*e = f.orConflict(*e)
	case entities.EventHookReceived:
		return f.checkVerified(r)
	case entities.EventAttrSet:
		return f.checkAttributes(r)
	case entities.EventStoreSet:
		return f.checkStore(r)
	default: // the tables are enough
	}
	return nil
}

// withFirstAttempt returns a step_created and the events of the attempt that the function has made.
func withFirstAttempt(created entities.Event, first FirstAttempt) []entities.Event {
	started, ended := startOf(created), created
	started.Seq++
	ended.Type, ended.Seq, ended.Payload, ended.Data = entities.EventStepRetrying, created.Seq+2, first.Payload, first.Data
	ended.Data.StepName = created.Data.StepName
	if first.Data.RetryAfter == nil {
		ended.Type = entities.EventStepFailed
	}
	return []entities.Event{created, started, ended}
}

// startOf returns the step_started of the step of another event, in the slot of that event.
func startOf(e entities.Event) entities.Event {
	e.Type, e.Payload, e.Data = entities.EventStepStarted, nil, entities.EventData{StepName: e.Data.StepName}
	return e
}

// awaitsRetry reports whether the step of the request has to wait for its next attempt.
func (f facts) awaitsRetry(r *Request, at time.Time) bool {
	step := f.Steps[entities.StepID(r.CorrelationID)]
	return step.Status == entities.StepPending && step.RetryAfter != nil && step.RetryAfter.After(at)
}

// lacksStart reports whether the log lacks the start of the attempt whose result the request has. Steps that succeed at
// once have none.
func (f facts) lacksStart(r *Request) bool {
	step := f.Steps[entities.StepID(r.CorrelationID)]
	return step.Status == entities.StepPending && (r.Type == entities.EventStepRetrying || step.Attempt > 0)
}

// createAndStartRun returns the events of a run_started that also creates its run, because the run_created got lost.
func createAndStartRun(r *Request, at time.Time) ([]entities.Event, error) {
	if err := checkCreation(r, at); err != nil {
		return nil, err
	}
	created := facts{Snapshot: &Snapshot{}}.newEvent(r, at)
	created.Type = entities.EventRunCreated
	return []entities.Event{created, startedEvent(r, 2, at)}, nil
}

// orConflict returns the hook_created as it is or, if another hook holds the token, with its claim to that, or as a
// hook_conflict.
func (f facts) orConflict(e entities.Event) entities.Event {
	holder := f.tokenHolder(e.Data.Token)
	if holder == nil || !holder.Holds(e.CreatedAt) {
		return e
	}
	refused := ""
	if victim := f.victims[holder.RunID]; victim != nil && e.Data.Force {
		if refused = forceRefused(victim.after.Run); refused == "" {
			e.Data.ForceClaimedFrom = claimOf(victim.after.Run, holder.ID)
			return e
		}
	}
	e.Type, e.Extra, e.Payload = entities.EventHookConflict, nil, nil
	e.Data = entities.EventData{
		Token: e.Data.Token, ConflictingRunID: holder.RunID, At: e.Data.At, ForceRefused: refused,
	}
	return e
}

// tokenHolder returns the hook that has the token, or nil: a hook of any run, or one that the same call creates.
func (f facts) tokenHolder(token string) *entities.Hook {
	for _, hook := range f.Hooks {
		if hook.Token == token {
			return &hook
		}
	}
	return f.holders[token]
}

// hasAttributes reports whether the run already has the attributes that the request sets.
func (f facts) hasAttributes(r *Request) bool {
	if f.Run == nil || r.CorrelationID != "" {
		return false
	}
	merged, err := entities.MergeAttributes(f.Run.Attributes, r.Data.Changes, r.Data.AllowReserved)
	return err == nil && maps.Equal(merged, f.Run.Attributes)
}

// checkRepeat returns errRepeated, or a conflict if the request uses the same ID for something else.
func (f facts) checkRepeat(r *Request) error {
	if r.Type != entities.EventStepCreated {
		return errRepeated
	}
	if step := f.Steps[entities.StepID(r.CorrelationID)]; step.Name != r.Data.StepName {
		return fmt.Errorf("step %s is named %q in the log and cannot become %q: %w",
			step.ID, step.Name, r.Data.StepName, entities.ErrConflict)
	}
	return errRepeated
}

// isRecorded reports whether the log already records what the request asks for, regardless of what happened since.
func (f facts) isRecorded(r *Request) bool {
	switch r.Type {
	case entities.EventRunStarted:
		return f.Run != nil && f.Run.StartedAt != nil && !f.Run.Status.Ended()
	case entities.EventStepCreated:
		_, ok := f.Steps[entities.StepID(r.CorrelationID)]
		return ok
	case entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed, entities.EventStepRetrying:
		return f.Steps[entities.StepID(r.CorrelationID)].CompletedAt != nil
	case entities.EventWaitCreated:
		_, ok := f.Waits[entities.WaitID(r.CorrelationID)]
		return ok
	case entities.EventWaitCompleted, entities.EventWaitCancelled:
		return f.Waits[entities.WaitID(r.CorrelationID)].CompletedAt != nil
	case entities.EventHookCreated:
		return f.history.claims(r.CorrelationID)
	case entities.EventAttrSet:
		return f.history.claims(r.CorrelationID) || f.hasAttributes(r)
	case entities.EventStoreSet:
		if r.isStoreCommand() {
			return f.history.first(r.CorrelationID, entities.EventStoreSet) != nil
		}
		return f.Steps[entities.StepID(r.CorrelationID)].CompletedAt != nil // it has the result of another execution
	case entities.EventHookDisposed:
		_, ok := f.Hooks[entities.HookID(r.CorrelationID)]
		return !ok && f.history.claims(r.CorrelationID)
	default:
		return false
	}
}

// checkAttributes checks an attr_set against the limits of the run's attributes, and that its ID was not used before.
func (f facts) checkAttributes(r *Request) error {
	if f.history.claims(r.CorrelationID) {
		return r.conflict(string(f.Run.Status))
	}
	_, err := entities.MergeAttributes(f.Run.Attributes, r.Data.Changes, r.Data.AllowReserved)
	return err
}

// checkStore checks a store_set against the limits of the run's store, and that its ID was not used before.
func (f facts) checkStore(r *Request) error {
	if f.Run.Driver != entities.DriverServer {
		return entities.Invalid("run %s has no store: its client continues it", r.RunID)
	}
	if r.isStoreCommand() && f.history.first(r.CorrelationID, entities.EventStoreSet) != nil {
		return r.conflict(string(f.Run.Status))
	}
	_, err := kv.Apply(f.Store, r.Payload, f.Run.LastSeq+1)
	return err
}

// createAndStartStep returns the events of a step_started that also creates its step. It is a claim to be the only one
// to execute the step, so the step must not exist in any status (protocol §3.7).
func (f facts) createAndStartStep(r *Request, at time.Time) ([]entities.Event, error) {
	creation := *r
	creation.Type, creation.Extra = entities.EventStepCreated, nil
	creation.Data = entities.EventData{StepName: r.Data.StepName, WorkflowName: r.Data.WorkflowName}
	if err := f.checkTransition(&creation, at); err != nil {
		return nil, err
	}
	created, started := f.newEvent(&creation, at), f.newEvent(r, at)
	started.Seq, started.Payload = created.Seq+1, nil
	return []entities.Event{created, started}, nil
}

// checkResumption returns errRepeated for a resumption that the log already has, or a conflict if that had another hook
// or payload.
func (f facts) checkResumption(r *Request) error {
	earlier := f.earlierOf(r)
	if earlier.CorrelationID == r.CorrelationID && earlier.Data.ResumeDigest == r.Data.ResumeDigest {
		return errRepeated
	}
	return r.conflict("resumed differently by " + r.Data.ResumeID)
}

// conflict refuses the request because of the status that its entity has already.
func (r *Request) conflict(status string) error {
	kind, id := r.Type.Kind(), r.CorrelationID
	if kind == entities.KindRun {
		id = string(r.RunID)
	}
	return &entities.TransitionError{Kind: kind, ID: id, Status: status, Event: r.Type, Refusal: entities.Conflict}
}

// checkVerified refuses payloads whose sender was not verified by the scheme that the hook requires, unless the request
// accepts that.
func (f facts) checkVerified(r *Request) error {
	created := f.history.first(r.CorrelationID, entities.EventHookCreated)
	if created == nil || created.Data.Webhook == nil || r.Unverified {
		return nil
	}
	if scheme := created.Data.Webhook.Verify; scheme != "" && scheme != r.Data.Verified {
		return &webhook.UnverifiedError{Hook: entities.HookID(r.CorrelationID), Scheme: scheme}
	}
	return nil
}

// checkTransition checks the request against the transition tables.
func (f facts) checkTransition(r *Request, at time.Time) error {
	if f.Run == nil {
		// run_created is the only event that does not need the run to exist. All others are refused as run_started is,
		// because the run is not found.
		event := entities.EventRunStarted
		if r.Type == entities.EventRunCreated {
			event = r.Type
		}
		return checkTable(entities.Runs, entities.KindRun, string(r.RunID), entities.RunNone, event)
	}
	id := r.CorrelationID
	switch kind := r.Type.Kind(); kind {
	case entities.KindStep:
		status := cmp.Or(f.Steps[entities.StepID(id)].Status, entities.StepNone)
		if r.Data.Late && f.Run.Status.Ended() {
			return checkTable(entities.LateResults, kind, id, status, r.Type)
		}
		return checkTable(f.Run.StepTable(), kind, id, status, r.Type)
	case entities.KindHook:
		return checkTable(f.Run.HookTable(), kind, id, f.hookStatus(r, at), r.Type)
	case entities.KindWait:
		status := cmp.Or(f.Waits[entities.WaitID(id)].Status, entities.WaitNone)
		return checkTable(f.Run.WaitTable(), kind, id, status, r.Type)
	default:
		return checkTable(entities.Runs, kind, string(r.RunID), f.Run.Status, r.Type)
	}
}

func checkTable[S ~string](t entities.Table[S], kind, id string, status S, event entities.EventType) error {
	_, err := t.Next(kind, id, status, event)
	var refused *entities.TransitionError
	if errors.As(err, &refused) && refused.Refusal == entities.Repeat {
		return errRepeated
	}
	return err
}

func (f facts) hookStatus(r *Request, at time.Time) entities.HookStatus {
	if hook, ok := f.Hooks[entities.HookID(r.CorrelationID)]; ok {
		if !hook.Holds(at) {
			return entities.HookDisposed
		}
		return entities.HookActive
	}
	if f.history.claims(r.CorrelationID) {
		return entities.HookDisposed
	}
	return entities.HookNone
}

// newEvent returns the event that the request asks for, at the next position of the log.
func (f facts) newEvent(r *Request, at time.Time) entities.Event {
	seq := int64(1)
	if f.Run != nil {
		seq = f.Run.LastSeq + 1
	}
	return entities.Event{
		RunID: r.RunID, Seq: seq, Type: r.Type, CorrelationID: r.CorrelationID, SpecVersion: r.SpecVersion,
		CreatedAt: at, OccurredAt: r.OccurredAt, Data: r.Data, Extra: r.Extra, Payload: r.Payload,
	}
}

// startedEvent returns a run_started. It has no data: any that the request carries is for creating the run.
func startedEvent(r *Request, seq int64, at time.Time) entities.Event {
	return entities.Event{
		RunID: r.RunID, Seq: seq, Type: entities.EventRunStarted, SpecVersion: r.SpecVersion,
		CreatedAt: at, OccurredAt: r.OccurredAt,
	}
}
