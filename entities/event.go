package entities

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EventType names what happened. The values are those of the Workflow SDK's wire protocol.
type EventType string

// The event kinds of the log.
const (
	EventRunCreated    EventType = "run_created"
	EventRunStarted    EventType = "run_started"
	EventRunCompleted  EventType = "run_completed"
	EventRunFailed     EventType = "run_failed"
	EventRunCancelled  EventType = "run_cancelled"
	EventAttrSet       EventType = "attr_set"
	EventStepCreated   EventType = "step_created"
	EventStepStarted   EventType = "step_started"
	EventStepCompleted EventType = "step_completed"
	EventStepFailed    EventType = "step_failed"
	EventStepRetrying  EventType = "step_retrying"
	EventHookCreated   EventType = "hook_created"
	EventHookReceived  EventType = "hook_received"
	EventHookDisposed  EventType = "hook_disposed"
	EventHookConflict  EventType = "hook_conflict"
	EventWaitCreated   EventType = "wait_created"
	EventWaitCompleted EventType = "wait_completed"
)

// EventTypes are all that an event of the log can have.
var EventTypes = []EventType{
	EventRunCreated, EventRunStarted, EventRunCompleted, EventRunFailed, EventRunCancelled, EventAttrSet,
	EventStepCreated, EventStepStarted, EventStepCompleted, EventStepFailed, EventStepRetrying,
	EventHookCreated, EventHookReceived, EventHookDisposed, EventHookConflict,
	EventWaitCreated, EventWaitCompleted,
}

// Event is one entry of a run's log. Events are immutable.
type Event struct {
	RunID RunID
	// Seq is the event's position in its run's log: dense from 1, allocated under the run lock (I1).
	Seq  int64
	Type EventType
	// CorrelationID names the step, hook or wait the event is about; empty for events about the run.
	CorrelationID string
	// SpecVersion is the protocol version the writer announced (protocol §8).
	SpecVersion int
	// CreatedAt is the server's clock when the event was decided: whole milliseconds, never before
	// the run's previous event.
	CreatedAt time.Time
	// OccurredAt is the writer's own clock, when it sent one.
	OccurredAt *time.Time
	// Data holds the facts the server understands.
	Data EventData
	// Extra is the CBOR map of everything else the writer sent (execution context, error values,
	// unknown keys), kept verbatim; nil when there was nothing else.
	Extra []byte
	// Payload is the user's data, opaque and returned bit for bit (I10); nil when there was none, and
	// when a query was asked to leave payloads out.
	Payload []byte
}

// ID is the event's public ID: see [EventID].
func (e Event) ID() EventID { return EventIDAt(e.Seq) }

// EventData is the part of an event the server reads. It is stored as a JSON object, so that the log
// can be queried in SQL; empty fields are left out.
type EventData struct {
	// DeploymentID and WorkflowName are set on run_created.
	DeploymentID string `json:"deploymentId,omitempty"`
	WorkflowName string `json:"workflowName,omitempty"`
	// Attributes are those a run_created starts the run with.
	Attributes map[string]string `json:"attributes,omitzero"`
	// The next ones are set on the run_created of runs that the server continues: see the fields of [Run].
	Driver         Driver     `json:"driver,omitempty"`
	UniqueKey      string     `json:"uniqueKey,omitempty"`
	IdempotencyKey string     `json:"idempotencyKey,omitempty"`
	ParentID       RunID      `json:"parentId,omitempty"`
	ParentStep     StepID     `json:"parentStep,omitempty"`
	Detached       bool       `json:"detached,omitempty"`
	Deadline       *time.Time `json:"deadline,omitempty"`
	// StartAt is when such a run is to begin, if not at once.
	StartAt *time.Time `json:"startAt,omitempty"`
	// RequestDigest is that of the request that started the run, which its repetitions must have as well.
	RequestDigest string `json:"requestDigest,omitempty"`
	// Reason is why a run was cancelled, as its canceller says.
	Reason string `json:"reason,omitempty"`
	// Step says how the server is to have a step executed; nil when others see to that.
	Step *StepSpec `json:"step,omitempty"`
	// StepName is set on step_created and, by most clients, on the step's other events.
	StepName string `json:"stepName,omitempty"`
	// Attempt is what the client of a step_started said; the server counts for itself.
	Attempt *int `json:"attempt,omitempty"`
	// ResumeAt is when a wait ends. It comes back to the millisecond: replay compares it.
	ResumeAt *time.Time `json:"resumeAt,omitempty"`
	// RetryAfter is the earliest time for a retried step's next attempt.
	RetryAfter *time.Time `json:"retryAfter,omitempty"`
	// Token is a hook's token.
	Token string `json:"token,omitempty"`
	// IsWebhook says that a hook may be resumed by the app's public webhook route.
	IsWebhook *bool `json:"isWebhook,omitempty"`
	// Webhook says how a hook of a run that the server continues receives webhooks.
	Webhook *WebhookSpec `json:"webhook,omitempty"`
	// Signal and Condition are those of the [Hook]; LookBackMS is how many milliseconds before the hook a
	// signal may have come.
	Signal     string `json:"signal,omitempty"`
	Condition  string `json:"condition,omitempty"`
	LookBackMS int64  `json:"lookBackMs,omitempty"`
	// IsSystem says that the SDK made a hook for itself.
	IsSystem *bool `json:"isSystem,omitempty"`
	// TokenRetentionUntil is until when a hook's token stays taken even if the run ends before.
	TokenRetentionUntil *time.Time `json:"tokenRetentionUntil,omitempty"`
	// ResumeID names the resumption a hook_received belongs to, so that it is recorded once however often
	// it is sent; ResumeDigest is the sender's digest of what it brings.
	ResumeID     string `json:"resumeId,omitempty"`
	ResumeDigest string `json:"resumePayloadDigest,omitempty"`
	// ConflictingRunID is the run that held the token of a hook_conflict.
	ConflictingRunID RunID `json:"conflictingRunId,omitempty"`
	// ErrorCode classifies a failure; a free string of the client's.
	ErrorCode string `json:"errorCode,omitempty"`
	// Changes are the attributes an attr_set sets or, with a nil value, removes.
	Changes []AttributeChange `json:"changes,omitempty"`
	// AllowReserved lets Changes and Attributes have keys that begin with "$".
	AllowReserved bool `json:"allowReservedAttributes,omitempty"`
}

// StepSpec says how the server has a step executed. All durations are in milliseconds.
type StepSpec struct {
	// DeploymentID says whose function executes the step; empty when a child run does.
	DeploymentID string `json:"deploymentId,omitempty"`
	// ChildID is the run whose result is the step's; empty when a function executes it.
	ChildID RunID `json:"childId,omitempty"`
	// Deadline is when the step fails if it has no result by then, wherever it is; nil for never.
	Deadline *time.Time `json:"deadline,omitempty"`
	// AttemptTimeoutMS bounds one attempt.
	AttemptTimeoutMS int64 `json:"attemptTimeoutMs,omitempty"`
	// MaxAttempts is after how many attempts that reached the function the step fails.
	MaxAttempts int `json:"maxAttempts,omitempty"`
	// BackoffMS is the pause after the first attempt; each further one is Factor times as long, at most
	// MaxBackoffMS.
	BackoffMS    int64   `json:"backoffMs,omitempty"`
	Factor       float64 `json:"factor,omitempty"`
	MaxBackoffMS int64   `json:"maxBackoffMs,omitempty"`
}

// Late reports whether the step's time is over.
func (s StepSpec) Late(now time.Time) bool {
	return s.Deadline != nil && !s.Deadline.After(now)
}

// Patience is how long to wait for the answer to an attempt.
func (s StepSpec) Patience(now time.Time) time.Duration {
	return s.Within(time.Duration(s.AttemptTimeoutMS)*time.Millisecond, now)
}

// Within is the duration, or less if the step's time is over before.
func (s StepSpec) Within(d time.Duration, now time.Time) time.Duration {
	if s.Deadline == nil {
		return d
	}
	return max(0, min(d, s.Deadline.Sub(now)))
}

// WebhookSpec says how a hook receives webhooks.
type WebhookSpec struct {
	// Verify names the scheme that a request must be signed by, and Secret the project's secret for it; empty
	// for none.
	Verify string `json:"verify,omitempty"`
	Secret string `json:"secret,omitempty"`
	// RespondMS is how many milliseconds a request waits for the workflow's response; 0 to be answered at once.
	RespondMS int64 `json:"respondMs,omitempty"`
}

// AttributeChange sets one attribute of a run, or removes it when Value is nil.
type AttributeChange struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// EventID is an event's public ID: "evnt_" and its position as 26 zero-padded digits. It has the shape
// of a ULID and sorts like one, but carries no time.
type EventID string

const eventIDPrefix = "evnt_"

// EventIDAt is the ID of the event at position seq of any run.
func EventIDAt(seq int64) EventID {
	return EventID(fmt.Sprintf("%s%026d", eventIDPrefix, seq))
}

// Seq is the position the ID stands for. It fails with [ErrInvalid] on anything [EventIDAt] cannot make.
func (id EventID) Seq() (int64, error) {
	digits, ok := strings.CutPrefix(string(id), eventIDPrefix)
	seq, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || seq < 1 || EventIDAt(seq) != id {
		return 0, Invalid("event ID %q is not %s and 26 digits", id, eventIDPrefix)
	}
	return seq, nil
}

// KindOf is the kind of entity an event is about: one of the Kind constants. Unknown types are about runs.
func KindOf(t EventType) string {
	switch {
	case Steps.has(t):
		return KindStep
	case Hooks.has(t):
		return KindHook
	case Waits.has(t):
		return KindWait
	default:
		return KindRun
	}
}
