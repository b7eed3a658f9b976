package eventlog

import (
	"maps"

	"github.com/stepwell-dev/stepwell/entities"
)

// Snapshot is a run with entities of it: all of them when it is folded from a whole log, or just those
// that an append touches.
type Snapshot struct {
	Project entities.Project
	// Run is nil while the run does not exist.
	Run   *entities.Run
	Steps map[entities.StepID]entities.Step
	// Hooks has live hooks, and those that outlive their run.
	Hooks map[entities.HookID]entities.Hook
	Waits map[entities.WaitID]entities.Wait
}

// NewSnapshot is a run of the project before its first event.
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
	c.Steps, c.Hooks, c.Waits = maps.Clone(s.Steps), maps.Clone(s.Hooks), maps.Clone(s.Waits)
	return &c
}

// Apply folds the next event of the run's log into the snapshot. The event must be one that was decided:
// Apply checks nothing (I2).
func (s *Snapshot) Apply(e entities.Event) {
	if e.Type == entities.EventRunCreated {
		s.createRun(e)
	}
	s.Run.LastSeq, s.Run.UpdatedAt = e.Seq, e.CreatedAt
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

func (s *Snapshot) createRun(e entities.Event) {
	s.Run = &entities.Run{
		ID: e.RunID, Project: s.Project, Status: entities.RunPending, SpecVersion: e.SpecVersion,
		DeploymentID: e.Data.DeploymentID, WorkflowName: e.Data.WorkflowName,
		Attributes: map[string]string{}, CreatedAt: e.CreatedAt,
		Driver: e.Data.Driver, UniqueKey: e.Data.UniqueKey, IdempotencyKey: e.Data.IdempotencyKey,
		ParentID: e.Data.ParentID, ParentStep: e.Data.ParentStep, Detached: e.Data.Detached, Deadline: e.Data.Deadline,
	}
	maps.Copy(s.Run.Attributes, e.Data.Attributes)
}

func (s *Snapshot) applyToRun(e entities.Event) {
	run := s.Run
	switch e.Type {
	case entities.EventRunStarted:
		run.Status = entities.RunRunning
		if run.StartedAt == nil {
			run.StartedAt = &e.CreatedAt
		}
	case entities.EventRunCompleted:
		s.end(entities.RunCompleted, e)
	case entities.EventRunFailed:
		run.ErrorCode = e.Data.ErrorCode
		s.end(entities.RunFailed, e)
	case entities.EventRunCancelled:
		s.end(entities.RunCancelled, e)
	case entities.EventAttrSet:
		// The merge was checked when the event was decided.
		run.Attributes, _ = entities.MergeAttributes(run.Attributes, e.Data.Changes, true)
	default: // run_created: see createRun
	}
}

// end is a run's terminal event: it releases the run's waits and its hooks, with their tokens, unless a hook
// is to be retained. A repeated run_cancelled changes nothing any more.
func (s *Snapshot) end(status entities.RunStatus, e entities.Event) {
	if s.Run.Status.Ended() {
		return
	}
	s.Run.Status, s.Run.EndSeq, s.Run.CompletedAt = status, e.Seq, &e.CreatedAt
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

func (s *Snapshot) applyToStep(e entities.Event) {
	id := entities.StepID(e.CorrelationID)
	step := s.Steps[id]
	step.UpdatedAt = e.CreatedAt
	switch e.Type {
	case entities.EventStepCreated:
		step = entities.Step{
			RunID: e.RunID, ID: id, Name: e.Data.StepName, Status: entities.StepPending,
			SpecVersion: e.SpecVersion, CreatedSeq: e.Seq, CreatedAt: e.CreatedAt, UpdatedAt: e.CreatedAt,
		}
	case entities.EventStepStarted:
		step.Status, step.RetryAfter = entities.StepRunning, nil
		step.Attempt++
		if step.StartedAt == nil {
			step.StartedAt = &e.CreatedAt
		}
	case entities.EventStepRetrying:
		step.Status, step.RetryAfter, step.ResultSeq = entities.StepPending, e.Data.RetryAfter, e.Seq
	case entities.EventStepCompleted:
		step.Status, step.ResultSeq, step.CompletedAt = entities.StepCompleted, e.Seq, &e.CreatedAt
	case entities.EventStepFailed:
		step.Status, step.ResultSeq, step.CompletedAt = entities.StepFailed, e.Seq, &e.CreatedAt
	default: // not about steps
	}
	s.Steps[id] = step
}

func (s *Snapshot) applyToHook(e entities.Event) {
	id := entities.HookID(e.CorrelationID)
	switch e.Type {
	case entities.EventHookCreated:
		s.Hooks[id] = entities.Hook{
			RunID: e.RunID, ID: id, Project: s.Project, Token: e.Data.Token,
			IsWebhook:   e.Data.IsWebhook != nil && *e.Data.IsWebhook,
			IsSystem:    e.Data.IsSystem != nil && *e.Data.IsSystem,
			SpecVersion: e.SpecVersion, CreatedSeq: e.Seq, CreatedAt: e.CreatedAt,
			RetainUntil: e.Data.TokenRetentionUntil,
			Signal:      e.Data.Signal, Condition: e.Data.Condition,
		}
	case entities.EventHookDisposed:
		delete(s.Hooks, id)
	default: // what a hook receives, and a lost contest for a token, are in the log alone
	}
}

func (s *Snapshot) applyToWait(e entities.Event) {
	id := entities.WaitID(e.CorrelationID)
	wait := s.Waits[id]
	wait.UpdatedAt = e.CreatedAt
	switch e.Type {
	case entities.EventWaitCreated:
		wait = entities.Wait{
			RunID: e.RunID, ID: id, Status: entities.WaitWaiting, SpecVersion: e.SpecVersion,
			ResumeAt: e.Data.ResumeAt, CreatedAt: e.CreatedAt, UpdatedAt: e.CreatedAt,
		}
	case entities.EventWaitCompleted:
		wait.Status, wait.CompletedAt = entities.WaitCompleted, &e.CreatedAt
	default: // not about waits
	}
	s.Waits[id] = wait
}
