package eventlog

import (
	"slices"
	"strings"
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
	// Kept is for the run_created of a fork: the events of the original that it begins with, from the first one. Data.Fork
	// then names the original.
	Kept []entities.Event
	// Children is for the run_created of a fork: a step_created, with its Child, for each child run that is open in Kept.
	// They are started with the run: see [Log.Fork].
	Children []Request
	// OfApp is for a run_created: the deployment has been read, and is no version of a flow. Such runs have no build.
	OfApp bool
	// Reserved is for a run_created: the server has told the run's ID to somebody, so that it may have been made long ago.
	Reserved bool
	// InBand says that the writer is the run's orchestrator, and SeqInBand how many in-band positions of the log it knows;
	// nil if it did not say. Both count only for runs with a fence: see [entities.SpecFence].
	InBand    bool
	SeqInBand *int64
	// Unfenced says that the request came by a route that cannot carry the fence.
	Unfenced bool
	// Once makes the request succeed without writing anything if the log already records what it asks for.
	Once bool
	// Grace is how long a run that is asked to cancel may take to end by itself; of a step_failed that cancels a child
	// run, how long the child may.
	Grace time.Duration
	// AsAsked makes a run_cancelled end the run for the reason of the last cancel_requested. If a timeout asked, the run
	// fails, with the request's payload as its error.
	AsAsked bool
	// ParentEnded says of a request that ends a run that its parent has ended: nobody waits for the report of the end.
	ParentEnded bool
	// Child is for a step_created that starts a child run: it is the run_created of that run, appended in the same
	// transaction.
	Child *Request
	// Output is for a step_created with a Child for which nobody waits: the step completes at once with it.
	Output []byte
	// Continue is for a run_completed: the run goes on as another one, which begins in the same transaction.
	Continue *Continuation
	// First is for a step_created of a step that its function has tried to execute itself before.
	First *FirstAttempt
	// Inline marks the result of an attempt that a function made itself. The start of the attempt is appended before it,
	// unless the log has it, or the step never needed a second attempt. A step_retrying before the time of the next
	// attempt repeats the last one.
	Inline bool
	// Early is for a step_started: it may come before the time of the next attempt, since somebody asked for that.
	Early bool
	// KnownSeq is for a late result of a step: the length of the log in which its writer has seen that the step has no
	// result yet but its cancellation. The result conflicts if the log has grown since.
	KnownSeq int64
	// refused is set by the log on a step_created, in place of its Child, if that may not start: the step fails at once.
	refused refusal
	// Messages are sent in the same transaction: if the event is appended, and only then.
	Messages []message.Message
	// Mark makes the request a repetition of one whose outcome got lost, if the log has an event of its type and
	// correlation ID whose extra data contains these bytes. For a hook_created, the hook_conflict of its hook counts too.
	Mark []byte
}

// FirstAttempt is a failed attempt at a step that is created with it. The server makes the next one.
type FirstAttempt struct {
	// Data has the error code and, unless the step has failed with it, RetryAfter. Payload is the error.
	Data    entities.EventData
	Payload []byte
}

// nextWork returns the messages to enqueue after an event of the request. The server waits for its attempt at a step
// that the function has tried first. A parent that has ended gets no report.
func (r *Request) nextWork(run *entities.Run, e *entities.Event) []message.Message {
	messages := nextWork(run, e)
	if r.ParentEnded {
		return slices.DeleteFunc(messages, func(m message.Message) bool { return m.Work == message.WorkReport })
	}
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
func (r *Request) createsRun() bool {
	return r.Type == entities.EventRunStarted &&
		r.Data.DeploymentID != "" && r.Data.WorkflowName != "" && len(r.Payload) > 0
}

// createsStep reports whether a step_started carries the input of its step, and so creates the step too (protocol
// §3.7).
func (r *Request) createsStep() bool {
	return r.Type == entities.EventStepStarted && r.Data.StepName != "" && len(r.Payload) > 0
}

// endsRun reports whether the request ends its run.
func (r *Request) endsRun() bool {
	switch r.Type {
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return true
	default:
		return false
	}
}

// anyOf reports whether one of the requests has a property. They are large, and not copied.
func anyOf(requests []Request, has func(*Request) bool) bool {
	for i := range requests {
		if has(&requests[i]) {
			return true
		}
	}
	return false
}

// isMarked reports whether the request may repeat one that the log has already.
func (r *Request) isMarked() bool { return len(r.Mark) > 0 }

// markKey identifies what the request repeats.
func (r *Request) markKey() string {
	return strings.Join([]string{string(r.Type), r.CorrelationID, string(r.Mark)}, "\x00")
}

// truncate makes the times of the request UTC, and truncates them to milliseconds, the precision of the protocol. What
// it points to stays as it is.
func (r *Request) truncate() {
	for _, t := range r.times() {
		if *t != nil {
			ms := (*t).UTC().Truncate(time.Millisecond)
			*t = &ms
		}
	}
	if r.Child != nil {
		child := *r.Child
		child.truncate()
		r.Child = &child
	}
	if r.Continue != nil {
		c := *r.Continue
		c.Next.truncate()
		r.Continue = &c
	}
	if r.First != nil {
		first := *r.First
		of := Request{Data: first.Data}
		of.truncate()
		first.Data = of.Data
		r.First = &first
	}
}

// times returns the times that the request may have. Those that it has not are nil.
func (r *Request) times() [9]**time.Time {
	d := &r.Data
	return [...]**time.Time{
		&r.OccurredAt, &d.ResumeAt, &d.RetryAfter, &d.TokenRetentionUntil, &d.Deadline, &d.StartAt, &d.StartedAt, &d.EndedAt,
		&d.ForcedAt,
	}
}

// validate checks the request as far as that does not depend on the run.
func (r *Request) validate(now time.Time) error {
	if !slices.Contains(entities.EventTypes, r.Type) || r.Type == entities.EventHookConflict { // only the server writes it
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
	if err := r.checkData(now); err != nil {
		return err
	}
	if len(r.Kept) > 0 {
		if err := checkKept(r.Kept, r.Children); err != nil {
			return err
		}
	}
	if r.First != nil {
		if err := (&Request{Data: r.First.Data}).checkStorable(); err != nil {
			return err
		}
	}
	if r.Child != nil {
		return r.Child.validate(now)
	}
	if r.Continue != nil {
		return r.Continue.Next.validate(now)
	}
	return nil
}

// checkData checks the fields that an event of the type must have.
func (r *Request) checkData(now time.Time) error {
	switch r.Type {
	case entities.EventRunCreated:
		return checkCreation(r, now)
	case entities.EventCancelRequested:
		if r.Grace < time.Millisecond {
			return entities.Invalid("a grace of %s is less than 1ms", r.Grace)
		}
	case entities.EventAttrSet:
		if len(r.Data.Changes) == 0 {
			return entities.Invalid("changes is missing")
		}
	case entities.EventStoreSet:
		_, err := kv.Decode(r.Payload)
		return err
	case entities.EventStepCreated:
		return entities.ValidateName("stepName", r.Data.StepName)
	case entities.EventHookCreated:
		if err := entities.ValidateToken(r.Data.Token); err != nil {
			return err
		}
		if until := r.Data.TokenRetentionUntil; until != nil && until.After(now.Add(maxTokenRetention)) {
			return entities.Invalid("tokenRetentionUntil %s is more than %d days ahead",
				until.Format(time.RFC3339), maxTokenRetention/(24*time.Hour))
		}
	case entities.EventWaitCreated:
		if r.Data.ResumeAt == nil {
			return entities.Invalid("resumeAt is missing")
		}
	default: // needs none
	}
	return nil
}

// maxTokenRetention is how far ahead a hook's token may be reserved.
const maxTokenRetention = 30 * 24 * time.Hour

func checkCreation(r *Request, now time.Time) error {
	if err := entities.ValidateNewRunID(r.RunID, now); err != nil && !r.Reserved {
		return err
	}
	if (r.Data.RootID != "") != (r.Data.Depth > 0) {
		return entities.Invalid("a run has a depth if it has a root")
	}
	// The queue accepts only such deployment IDs. A run with another could never be invoked.
	if err := entities.ValidateID("deploymentId", r.Data.DeploymentID); err != nil {
		return err
	}
	return entities.ValidateWorkflowName("workflowName", r.Data.WorkflowName)
}

// checkStorable checks that Postgres can store all texts and times that a client can send.
func (r *Request) checkStorable() error {
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
		{"undo", r.Data.Undo},
	} {
		if text.value == "" {
			continue
		}
		if err := entities.ValidateName(text.what, text.value); err != nil {
			return err
		}
	}
	for _, t := range r.times() {
		if at := *t; at != nil && (at.Year() < 1 || at.Year() > 9999) {
			return entities.Invalid("a time is not in the years 1 to 9999")
		}
	}
	if err := entities.ValidateAttributes(r.Data.Attributes, r.Data.AllowReserved); err != nil {
		return err
	}
	_, err := entities.MergeAttributes(nil, r.Data.Changes, r.Data.AllowReserved)
	return err
}
