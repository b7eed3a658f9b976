package eventlog

import (
	"maps"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/kv"
)

// Snapshot is a run with its entities: all of them if it is folded from a whole log, or those that an append reads.
type Snapshot struct {
	Project entities.Project
	// Run is nil while the run does not exist.
	Run   *entities.Run
	Steps map[entities.StepID]entities.Step
	// Hooks has the live hooks, including those whose token is retained after the end of the run.
	Hooks map[entities.HookID]entities.Hook
	Waits map[entities.WaitID]entities.Wait
	// Store is the run's store: whole, or nil if it is empty or was not read. It is empty if Run.StoreSeq is 0.
	Store map[string]kv.Value
}

// NewSnapshot returns the snapshot of a run of the project before its first event.
func NewSnapshot(project entities.Project) *Snapshot {
	return &Snapshot{
		Project: project,
		Steps:   map[entities.StepID]entities.Step{},
		Hooks:   map[entities.HookID]entities.Hook{},
		Waits:   map[entities.WaitID]entities.Wait{},
	}
}

func (s *Snapshot) clone() *Snapshot {
	c := *s
	if s.Run != nil {
		run := *s.Run
		c.Run = &run
	}
	c.Steps, c.Hooks, c.Waits = maps.Clone(s.Steps), maps.Clone(s.Hooks), maps.Clone(s.Waits) // Apply replaces Store
	return &c
}

// Apply folds the next event of the run's log into the snapshot. It checks nothing: the event must be a decided one.
// Rows are written, verified and rebuilt by this fold alone (I2). Nothing of it points into the event, which is large,
// and would be copied to the heap.
func (s *Snapshot) Apply(e *entities.Event) {
	if e.Type == entities.EventRunCreated {
		s.createRun(e)
	}
	s.Run.LastSeq, s.Run.UpdatedAt = e.Seq, e.CreatedAt
	if s.Run.Fenced() && (e.Type == entities.EventRunCreated || e.Data.InBand) {
		s.Run.SeqInBand++
	}
	switch e.Type.Kind() {
	case entities.KindRun:
		s.applyToRun(e)
	case entities.KindStep:
		s.applyToStep(e)
	case entities.KindHook:
		s.applyToHook(e)
	case entities.KindWait:
		s.applyToWait(e)
	}
}

// CheckNext returns an error if the transition tables forbid a logged event after the events in the snapshot. Claimed
// reports whether one of them already used the event's correlation ID for a hook; the snapshot alone cannot tell, since
// disposed hooks leave no trace in it. Verification calls it because [Snapshot.Apply] checks nothing.
func (s *Snapshot) CheckNext(e entities.Event, claimed bool) error {
	r := Request{RunID: e.RunID, Type: e.Type, CorrelationID: e.CorrelationID}
	r.Data.Late = e.Data.Late
	f := facts{Snapshot: s}
	if claimed {
		f.history = history{r.CorrelationID: {{Type: entities.EventHookCreated}}}
	}
	err := f.checkTransition(&r, e.CreatedAt)
	if err == nil && e.Type == entities.EventAttrSet {
		_, err = entities.MergeAttributes(s.Run.Attributes, e.Data.Changes, true)
	}
	if err == nil && e.Type == entities.EventStoreSet && !atrest.IsUnreadable(e.Payload) {
		_, err = kv.Apply(s.Store, e.Payload, e.Seq)
	}
	return err
}

func (s *Snapshot) createRun(e *entities.Event) {
	s.Run = &entities.Run{
		ID: e.RunID, Project: s.Project, Status: entities.RunPending, SpecVersion: e.SpecVersion,
		DeploymentID: e.Data.DeploymentID, WorkflowName: e.Data.WorkflowName,
		Attributes: map[string]string{}, CreatedAt: e.CreatedAt,
		Driver: e.Data.Driver, UniqueKey: e.Data.UniqueKey, IdempotencyKey: e.Data.IdempotencyKey,
		ParentID: e.Data.ParentID, ParentStep: e.Data.ParentStep, Detached: e.Data.Detached, Deadline: e.Data.Deadline,
		Limits: e.Data.Limits, StepLimits: e.Data.StepLimits, RootID: e.Data.RootID, Depth: e.Data.Depth,
		ContinuedFrom: e.Data.ContinuedFrom,
	}
	maps.Copy(s.Run.Attributes, e.Data.Attributes)
	if fork := e.Data.Fork; fork != nil {
		s.Run.ForkOf, s.Run.ForkSeq, s.Run.CreatedAt = fork.RunID, fork.Events, fork.At
	}
}

func (s *Snapshot) applyToRun(e *entities.Event) {
	run := s.Run
	switch e.Type {
	case entities.EventRunStarted:
		if e.Seq <= run.ForkSeq {
			return // the original has started
		}
		run.Status = entities.RunRunning
		if run.StartedAt == nil {
			run.StartedAt = new(e.CreatedAt)
		}
	case entities.EventRunCompleted:
		run.ContinuedAs = e.Data.ContinuedAs
		s.end(entities.RunCompleted, e)
	case entities.EventRunFailed:
		run.ErrorCode = e.Data.ErrorCode
		s.end(entities.RunFailed, e)
	case entities.EventRunCancelled:
		s.end(entities.RunCancelled, e)
	case entities.EventCancelRequested:
		run.ForcedAt = e.Data.ForcedAt
	case entities.EventAttrSet:
		// The merge was checked when the event was decided.
		run.Attributes, _ = entities.MergeAttributes(run.Attributes, e.Data.Changes, true)
	case entities.EventStoreSet:
		if !atrest.IsUnreadable(e.Payload) { // shredding has deleted the rows
			s.Store, _ = kv.Apply(s.Store, e.Payload, e.Seq) // checked likewise
		}
		run.StoreSeq = e.Seq
	default: // run_created: see createRun
	}
}

// end applies a terminal event: it deletes the run's waits, and its hooks with their tokens, except hooks whose token
// is retained. A second run_cancelled changes nothing.
func (s *Snapshot) end(status entities.RunStatus, e *entities.Event) {
	if s.Run.Status.Ended() {
		return
	}
	s.Run.Status, s.Run.EndSeq, s.Run.CompletedAt = status, e.Seq, new(e.CreatedAt)
	clear(s.Waits)
	for id, hook := range s.Hooks {
		if hook.RetainUntil == nil || !hook.RetainUntil.After(e.CreatedAt) {
			delete(s.Hooks, id)
			continue
		}
		hook.ExpiresAt = hook.RetainUntil
		s.Hooks[id] = hook
	}
}

func (s *Snapshot) applyToStep(e *entities.Event) {
	id := entities.StepID(e.CorrelationID)
	step := s.Steps[id]
	step.UpdatedAt = e.CreatedAt
	if step.CompletedAt != nil { // a late result: see [entities.LateResults]
		s.Steps[id] = step
		return
	}
	switch e.Type {
	case entities.EventStepCreated:
		step = entities.Step{
			RunID: e.RunID, ID: id, Name: e.Data.StepName, Status: entities.StepPending,
			SpecVersion: e.SpecVersion, CreatedSeq: e.Seq, CreatedAt: e.CreatedAt, UpdatedAt: e.CreatedAt,
		}
	case entities.EventStepStarted:
		step.Status, step.RetryAfter = entities.StepRunning, nil
		step.Attempt++
		if s.Run.Fenced() && e.Data.Attempt != nil {
			step.Attempt = *e.Data.Attempt // its clients count
		}
		if step.StartedAt == nil {
			step.StartedAt = new(e.CreatedAt)
		}
	case entities.EventStepRetrying:
		step.Status, step.RetryAfter, step.ResultSeq = entities.StepPending, e.Data.RetryAfter, e.Seq
	case entities.EventStepCompleted, entities.EventStepFailed:
		step.Status, step.ResultSeq, step.CompletedAt = entities.StepCompleted, e.Seq, new(e.CreatedAt)
		if e.Type == entities.EventStepFailed {
			step.Status = entities.StepFailed
		}
		if e.Data.StartedAt != nil { // the function has executed it, and its only attempt has no step_started
			step.Attempt = max(step.Attempt, 1)
		}
	default: // not about steps
	}
	s.Steps[id] = step
}

func (s *Snapshot) applyToHook(e *entities.Event) {
	id := entities.HookID(e.CorrelationID)
	switch e.Type {
	case entities.EventHookCreated:
		s.Hooks[id] = entities.Hook{
			RunID: e.RunID, ID: id, Project: s.Project, Token: e.Data.Token,
			IsWebhook:   e.Data.IsWebhook != nil && *e.Data.IsWebhook,
			IsSystem:    e.Data.IsSystem != nil && *e.Data.IsSystem,
			SpecVersion: e.SpecVersion, CreatedSeq: e.Seq, CreatedAt: e.CreatedAt,
			RetainUntil: e.Data.TokenRetentionUntil,
			Signal:      e.Data.Signal, Condition: e.Data.Condition, ClaimedFrom: e.Data.ForceClaimedFrom,
		}
	case entities.EventHookDisposed:
		delete(s.Hooks, id)
	default: // hook_received and hook_conflict change no row
	}
}

func (s *Snapshot) applyToWait(e *entities.Event) {
	if s.Run.Status.Ended() {
		return // which has deleted its waits
	}
	id := entities.WaitID(e.CorrelationID)
	wait := s.Waits[id]
	wait.UpdatedAt = e.CreatedAt
	switch e.Type {
	case entities.EventWaitCreated:
		wait = entities.Wait{
			RunID: e.RunID, ID: id, Project: s.Project, Status: entities.WaitWaiting, SpecVersion: e.SpecVersion,
			ResumeAt: e.Data.ResumeAt, CreatedAt: e.CreatedAt, UpdatedAt: e.CreatedAt,
		}
	case entities.EventWaitCompleted:
		wait.Status, wait.CompletedAt = entities.WaitCompleted, new(e.CreatedAt)
	case entities.EventWaitCancelled:
		wait.Status, wait.CompletedAt = entities.WaitCancelled, new(e.CreatedAt)
	default: // not about waits
	}
	s.Waits[id] = wait
}
