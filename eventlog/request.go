package eventlog

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Request asks for one event to be appended to a run.
type Request struct {
	RunID entities.RunID
	Type  entities.EventType
	// CorrelationID is the ID of the step, hook or wait the event is about; empty for events about the run.
	CorrelationID string
	// SpecVersion is the protocol version the writer announced.
	SpecVersion int
	// OccurredAt is the writer's clock, if it sent one.
	OccurredAt *time.Time
	Data       entities.EventData
	// Extra and Payload are stored as they are: see [entities.Event].
	Extra   []byte
	Payload []byte
	// Once makes it a success that writes nothing if what the request asks for is so already.
	Once bool
	// Child is the run_created of a run that a step_created starts, which is created with it.
	Child *Request
	// Messages are sent in the same transaction, so exactly when the event is recorded.
	Messages []entities.Message
}

// createsRun reports whether a run_started carries what a run_created would, so that it can repair one
// that got lost (protocol §3.5).
func (r Request) createsRun() bool {
	return r.Type == entities.EventRunStarted &&
		r.Data.DeploymentID != "" && r.Data.WorkflowName != "" && len(r.Payload) > 0
}

// createsStep reports whether a step_started brings the input of its step and is to create it as well
// (protocol §3.7).
func (r Request) createsStep() bool {
	return r.Type == entities.EventStepStarted && r.Data.StepName != "" && len(r.Payload) > 0
}

// exact is the request with its times as all of the protocol sees them: whole milliseconds, UTC.
func (r Request) exact() Request {
	r.OccurredAt, r.Data.ResumeAt = exact(r.OccurredAt), exact(r.Data.ResumeAt)
	r.Data.RetryAfter, r.Data.TokenRetentionUntil = exact(r.Data.RetryAfter), exact(r.Data.TokenRetentionUntil)
	r.Data.Deadline, r.Data.StartAt = exact(r.Data.Deadline), exact(r.Data.StartAt)
	if r.Child != nil {
		child := r.Child.exact()
		r.Child = &child
	}
	return r
}

func exact(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	ms := t.UTC().Truncate(time.Millisecond)
	return &ms
}

// validate checks everything about a request that does not depend on the run.
func (r Request) validate(now time.Time) error {
	required, ok := checks[r.Type]
	if !ok {
		return entities.Invalid("%q is not an event a client can write", r.Type)
	}
	if err := entities.ValidateID("run ID", string(r.RunID)); err != nil {
		return err
	}
	if r.Type.Kind() != entities.KindRun || r.CorrelationID != "" {
		if err := entities.ValidateID("correlation ID", r.CorrelationID); err != nil {
			return err
		}
	}
	if err := r.storable(); err != nil {
		return err
	}
	for _, check := range required {
		if err := check(r, now); err != nil {
			return err
		}
	}
	if r.Child != nil {
		return r.Child.validate(now)
	}
	return nil
}

// checks are what each type of event must bring along. A type that is not here cannot be requested:
// hook_conflict, which only the server writes, and unknown ones.
var checks = map[entities.EventType][]func(Request, time.Time) error{
	entities.EventRunCreated:    {creation},
	entities.EventRunStarted:    {},
	entities.EventRunCompleted:  {},
	entities.EventRunFailed:     {},
	entities.EventRunCancelled:  {},
	entities.EventAttrSet:       {changes},
	entities.EventStepCreated:   {stepName},
	entities.EventStepStarted:   {},
	entities.EventStepCompleted: {},
	entities.EventStepFailed:    {},
	entities.EventStepRetrying:  {},
	entities.EventHookCreated:   {token, retention},
	entities.EventHookReceived:  {},
	entities.EventHookDisposed:  {},
	entities.EventWaitCreated:   {resumeAt},
	entities.EventWaitCompleted: {},
}

func creation(r Request, now time.Time) error {
	if err := entities.ValidateNewRunID(r.RunID, now); err != nil {
		return err
	}
	// As the queue takes them: a run that no message can be about could never be woken.
	if err := entities.ValidateID("deploymentId", r.Data.DeploymentID); err != nil {
		return err
	}
	return entities.ValidateWorkflowName("workflowName", r.Data.WorkflowName)
}

func stepName(r Request, _ time.Time) error {
	return entities.ValidateName("stepName", r.Data.StepName)
}

func token(r Request, _ time.Time) error {
	return entities.ValidateToken(r.Data.Token)
}

// maxTokenRetention is how far ahead a hook's token may be promised to stay taken.
const maxTokenRetention = 30 * 24 * time.Hour

func retention(r Request, now time.Time) error {
	if until := r.Data.TokenRetentionUntil; until != nil && until.After(now.Add(maxTokenRetention)) {
		return entities.Invalid("tokenRetentionUntil %s is more than %d days ahead",
			until.Format(time.RFC3339), maxTokenRetention/(24*time.Hour))
	}
	return nil
}

func resumeAt(r Request, _ time.Time) error {
	if r.Data.ResumeAt == nil {
		return entities.Invalid("resumeAt is missing")
	}
	return nil
}

func changes(r Request, _ time.Time) error {
	if len(r.Data.Changes) == 0 {
		return entities.Invalid("changes is missing")
	}
	return nil
}

// storable refuses texts and times that Postgres could not store, in whichever field a client puts them.
func (r Request) storable() error {
	for _, text := range [...]struct{ what, value string }{
		{"deploymentId", r.Data.DeploymentID},
		{"workflowName", r.Data.WorkflowName},
		{"stepName", r.Data.StepName},
		{"token", r.Data.Token},
		{"conflictingRunId", string(r.Data.ConflictingRunID)},
		{"errorCode", r.Data.ErrorCode},
		{"resumeId", r.Data.ResumeID},
		{"resumePayloadDigest", r.Data.ResumeDigest},
		{"key", r.Data.UniqueKey},
		{"idempotencyKey", r.Data.IdempotencyKey},
		{"requestDigest", r.Data.RequestDigest},
		{"parent", string(r.Data.ParentID)},
		{"step of the parent", string(r.Data.ParentStep)},
		{"reason", r.Data.Reason},
		{"signal", r.Data.Signal},
	} {
		if text.value == "" {
			continue
		}
		if err := entities.ValidateName(text.what, text.value); err != nil {
			return err
		}
	}
	for _, t := range [...]*time.Time{
		r.OccurredAt, r.Data.ResumeAt, r.Data.RetryAfter, r.Data.TokenRetentionUntil, r.Data.Deadline, r.Data.StartAt,
	} {
		if t != nil && (t.Year() < 1 || t.Year() > 9999) {
			return entities.Invalid("a time is outside the years 1 to 9999")
		}
	}
	if err := entities.ValidateAttributes(r.Data.Attributes, r.Data.AllowReserved); err != nil {
		return err
	}
	_, err := entities.MergeAttributes(nil, r.Data.Changes, r.Data.AllowReserved)
	return err
}
