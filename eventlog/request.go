package eventlog

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// Request asks for one event to be appended to a run.
type Request struct {
	RunID entities.RunID
	Type  entities.EventType
	// CorrelationID is the ID of the step, hook or wait that the event is about; empty for events about the run.
	CorrelationID string
	// SpecVersion is the protocol version that the writer announced.
	SpecVersion int
	// OccurredAt is the writer's time, if it sent one.
	OccurredAt *time.Time
	Data       entities.EventData
	// Extra and Payload are stored unchanged: see [entities.Event].
	Extra   []byte
	Payload []byte
	// FreshToken says that the token of a hook_created is random, so that no other hook has it.
	FreshToken bool
	// Unverified makes a hook accept the payload of a hook_received although it requires signed requests.
	Unverified bool
	// RerunOf is for the run_created of a copy, for the audit: the run that is copied.
	RerunOf entities.RunID
	// Once makes the request succeed without writing anything if the log already records what it asks for.
	Once bool
	// Grace is how long a run that is asked to cancel may take to end by itself; of a step_failed that cancels a child
	// run, how long the child may.
	Grace time.Duration
	// AsAsked makes a run_cancelled end the run for the reason of the last cancel_requested. If a timeout asked, the run
	// fails, with the request's payload as its error.
	AsAsked bool
	// Child is for a step_created that starts a child run: it is the run_created of that run, appended in the same
	// transaction.
	Child *Request
	// First is for a step_created of a step that its function has tried to execute itself before.
	First *FirstAttempt
	// Inline marks the result of an attempt that a function made itself. The start of the attempt is appended before it,
	// unless the log has it, or the step never needed a second attempt. A step_retrying before the time of the next
	// attempt repeats the last one.
	Inline bool
	// Messages are sent in the same transaction: if the event is appended, and only then.
	Messages []message.Message
}

// FirstAttempt is a failed attempt at a step that is created with it. The server makes the next one.
type FirstAttempt struct {
	// Data has the error code and, unless the step has failed with it, RetryAfter. Payload is the error.
	Data    entities.EventData
	Payload []byte
}

// nextWork returns the messages to enqueue after an event of the request. The server waits for its attempt at a step
// that the function has tried first.
func (r Request) nextWork(run *entities.Run, e entities.Event) []message.Message {
	messages := nextWork(run, e)
	if e.Type != entities.EventStepCreated || r.First == nil {
		return messages
	}
	retry := r.First.Data.RetryAfter
	if retry == nil {
		return nil // it has failed
	}
	for i := range messages {
		messages[i].Delay, messages[i].Deliveries = max(0, retry.Sub(e.CreatedAt)), 1
	}
	return messages
}

// createsRun reports whether a run_started carries the data of a run_created, so that it can make up for one that got
// lost (protocol §3.5).
func (r Request) createsRun() bool {
	return r.Type == entities.EventRunStarted &&
		r.Data.DeploymentID != "" && r.Data.WorkflowName != "" && len(r.Payload) > 0
}

// createsStep reports whether a step_started carries the input of its step, and so creates the step too (protocol
// §3.7).
func (r Request) createsStep() bool {
	return r.Type == entities.EventStepStarted && r.Data.StepName != "" && len(r.Payload) > 0
}

// truncated returns the request with its times in UTC, truncated to milliseconds, the precision of the protocol.
func (r Request) truncated() Request {
	r.OccurredAt, r.Data.ResumeAt = truncate(r.OccurredAt), truncate(r.Data.ResumeAt)
	r.Data.RetryAfter, r.Data.TokenRetentionUntil = truncate(r.Data.RetryAfter), truncate(r.Data.TokenRetentionUntil)
	r.Data.Deadline, r.Data.StartAt = truncate(r.Data.Deadline), truncate(r.Data.StartAt)
	r.Data.StartedAt, r.Data.EndedAt = truncate(r.Data.StartedAt), truncate(r.Data.EndedAt)
	r.Data.ForcedAt = truncate(r.Data.ForcedAt)
	if r.Child != nil {
		child := r.Child.truncated()
		r.Child = &child
	}
	if r.First != nil {
		first := *r.First
		first.Data = Request{Data: first.Data}.truncated().Data
		r.First = &first
	}
	return r
}

func truncate(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	ms := t.UTC().Truncate(time.Millisecond)
	return &ms
}

// validate checks the request as far as that does not depend on the run.
func (r Request) validate(now time.Time) error {
	required, ok := checks[r.Type]
	if !ok {
		return entities.Invalid("clients cannot write events of type %q", r.Type)
	}
	if err := entities.ValidateID("run ID", string(r.RunID)); err != nil {
		return err
	}
	if r.Type.Kind() != entities.KindRun || r.CorrelationID != "" {
		if err := entities.ValidateID("correlation ID", r.CorrelationID); err != nil {
			return err
		}
	}
	if err := r.checkStorable(); err != nil {
		return err
	}
	for _, check := range required {
		if err := check(r, now); err != nil {
			return err
		}
	}
	if r.First != nil {
		if err := (Request{Data: r.First.Data}).checkStorable(); err != nil {
			return err
		}
	}
	if r.Child != nil {
		return r.Child.validate(now)
	}
	return nil
}

// checks has the checks for each type of event. A type without an entry cannot be requested: hook_conflict, which only
// the server writes, and unknown ones.
var checks = map[entities.EventType][]func(Request, time.Time) error{
	entities.EventRunCreated:      {checkCreation},
	entities.EventRunStarted:      {},
	entities.EventRunCompleted:    {},
	entities.EventRunFailed:       {},
	entities.EventRunCancelled:    {},
	entities.EventCancelRequested: {checkGrace},
	entities.EventAttrSet:         {checkChanges},
	entities.EventStoreSet:        {checkValues},
	entities.EventStepCreated:     {checkStepName},
	entities.EventStepStarted:     {},
	entities.EventStepCompleted:   {},
	entities.EventStepFailed:      {},
	entities.EventStepRetrying:    {},
	entities.EventHookCreated:     {checkToken, checkRetention},
	entities.EventHookReceived:    {},
	entities.EventHookDisposed:    {},
	entities.EventWaitCreated:     {checkResumeAt},
	entities.EventWaitCompleted:   {},
	entities.EventWaitCancelled:   {},
}

func checkCreation(r Request, now time.Time) error {
	if err := entities.ValidateNewRunID(r.RunID, now); err != nil {
		return err
	}
	// The queue accepts only such deployment IDs. A run with another could never be invoked.
	if err := entities.ValidateID("deploymentId", r.Data.DeploymentID); err != nil {
		return err
	}
	return entities.ValidateWorkflowName("workflowName", r.Data.WorkflowName)
}

func checkStepName(r Request, _ time.Time) error {
	return entities.ValidateName("stepName", r.Data.StepName)
}

func checkToken(r Request, _ time.Time) error {
	return entities.ValidateToken(r.Data.Token)
}

// maxTokenRetention is how far ahead a hook's token may be reserved.
const maxTokenRetention = 30 * 24 * time.Hour

func checkRetention(r Request, now time.Time) error {
	if until := r.Data.TokenRetentionUntil; until != nil && until.After(now.Add(maxTokenRetention)) {
		return entities.Invalid("tokenRetentionUntil %s is more than %d days ahead",
			until.Format(time.RFC3339), maxTokenRetention/(24*time.Hour))
	}
	return nil
}

func checkGrace(r Request, _ time.Time) error {
	if r.Grace < time.Millisecond {
		return entities.Invalid("a grace of %s is less than 1ms", r.Grace)
	}
	return nil
}

func checkResumeAt(r Request, _ time.Time) error {
	if r.Data.ResumeAt == nil {
		return entities.Invalid("resumeAt is missing")
	}
	return nil
}

func checkChanges(r Request, _ time.Time) error {
	if len(r.Data.Changes) == 0 {
		return entities.Invalid("changes is missing")
	}
	return nil
}

func checkValues(r Request, _ time.Time) error {
	_, err := kv.Decode(r.Payload)
	return err
}

// checkStorable checks that Postgres can store all texts and times that a client can send.
func (r Request) checkStorable() error {
	for _, text := range [...]struct{ what, value string }{
		{"deploymentId", r.Data.DeploymentID},
		{"workflowName", r.Data.WorkflowName},
		{"stepName", r.Data.StepName},
		{"token", r.Data.Token},
		{"conflictingRunId", string(r.Data.ConflictingRunID)},
		{"errorCode", r.Data.ErrorCode},
		{"resumeId", r.Data.ResumeID},
		{"resumePayloadDigest", r.Data.ResumeDigest},
		{"messageId", r.Data.MessageID},
		{"key", r.Data.UniqueKey},
		{"idempotencyKey", r.Data.IdempotencyKey},
		{"requestDigest", r.Data.RequestDigest},
		{"parent", string(r.Data.ParentID)},
		{"step of the parent", string(r.Data.ParentStep)},
		{"reason", r.Data.Reason},
		{"signal", r.Data.Signal},
		{"at", r.Data.At},
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
		r.Data.StartedAt, r.Data.EndedAt,
	} {
		if t != nil && (t.Year() < 1 || t.Year() > 9999) {
			return entities.Invalid("a time is not in the years 1 to 9999")
		}
	}
	if err := entities.ValidateAttributes(r.Data.Attributes, r.Data.AllowReserved); err != nil {
		return err
	}
	_, err := entities.MergeAttributes(nil, r.Data.Changes, r.Data.AllowReserved)
	return err
}
