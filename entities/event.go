package entities

import (
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// EventType is a type of event, with the name it has in the Workflow SDK's wire protocol.
type EventType string

// The event types.
const (
	EventRunCreated   EventType = "run_created"
	EventRunStarted   EventType = "run_started"
	EventRunCompleted EventType = "run_completed"
	EventRunFailed    EventType = "run_failed"
	EventRunCancelled EventType = "run_cancelled"
	// EventCancelRequested asks the run to end by itself within a grace.
	EventCancelRequested EventType = "cancel_requested"
	EventAttrSet         EventType = "attr_set"
	EventStoreSet        EventType = "store_set"
	EventStepCreated     EventType = "step_created"
	EventStepStarted     EventType = "step_started"
	EventStepCompleted   EventType = "step_completed"
	EventStepFailed      EventType = "step_failed"
	EventStepRetrying    EventType = "step_retrying"
	EventHookCreated     EventType = "hook_created"
	EventHookReceived    EventType = "hook_received"
	EventHookDisposed    EventType = "hook_disposed"
	EventHookConflict    EventType = "hook_conflict"
	EventWaitCreated     EventType = "wait_created"
	EventWaitCompleted   EventType = "wait_completed"
	EventWaitCancelled   EventType = "wait_cancelled"
)

// EventTypes lists all event types.
var EventTypes = []EventType{
	EventRunCreated, EventRunStarted, EventRunCompleted, EventRunFailed, EventRunCancelled,
	EventCancelRequested, EventAttrSet, EventStoreSet,
	EventStepCreated, EventStepStarted, EventStepCompleted, EventStepFailed, EventStepRetrying,
	EventHookCreated, EventHookReceived, EventHookDisposed, EventHookConflict,
	EventWaitCreated, EventWaitCompleted, EventWaitCancelled,
}

// Kind returns the kind of entity that events of the type are about: one of the Kind constants. Unknown types are about
// runs.
func (t EventType) Kind() string {
	if kind, ok := kinds[t]; ok {
		return kind
	}
	return KindRun
}

// kinds has the types that are not about runs.
var kinds = func() map[EventType]string {
	m := map[EventType]string{}
	for _, t := range EventTypes {
		switch {
		case steps.has(t):
			m[t] = KindStep
		case hooks.has(t):
			m[t] = KindHook
		case waits.has(t):
			m[t] = KindWait
		}
	}
	return m
}()

// Event is one entry of a run's log. Events are immutable.
type Event struct {
	RunID RunID
	// Seq is the event's position in its run's log. Positions are dense from 1 (I1).
	Seq  int64
	Type EventType
	// CorrelationID is the ID of the step, hook or wait that the event is about; empty for events about the run.
	CorrelationID string
	// SpecVersion is the protocol version of the writer (protocol §8).
	SpecVersion int
	// CreatedAt is the server's time when it decided to append the event: whole milliseconds, and never before the
	// run's previous event.
	CreatedAt time.Time
	// OccurredAt is the time of the writer's clock, if it sent one.
	OccurredAt *time.Time
	// Data holds the fields that the server reads.
	Data EventData
	// Extra is a CBOR map of the other fields that the writer sent (execution context, error values, unknown keys),
	// kept verbatim; nil for none.
	Extra []byte
	// Payload is the user's data, opaque and returned bit for bit (I10); nil for none, and in queries without payloads.
	Payload []byte
}

// Payloads implements [atrest.Row].
func (e *Event) Payloads(o *atrest.Opener) {
	o.Bytes(atrest.Place{Kind: atrest.Event, Owner: string(e.RunID), Seq: e.Seq}, &e.Payload)
	o.Bytes(atrest.Place{Kind: atrest.Extra, Owner: string(e.RunID), Seq: e.Seq}, &e.Extra)
}

// ID returns the event's public ID.
func (e Event) ID() EventID { return eventIDAt(e.Seq) }

// EventData holds the fields of an event that the server reads. It is stored as a JSON object without the empty fields,
// so that the log can be queried in SQL.
type EventData struct {
	// DeploymentID and WorkflowName are set on run_created.
	DeploymentID string `json:"deploymentId,omitempty"`
	WorkflowName string `json:"workflowName,omitempty"`
	// Attributes are set on run_created: the initial attributes of the run.
	Attributes map[string]string `json:"attributes,omitzero"`
	// The fields from here to RequestDigest are set on the run_created of runs that the server drives. The first ones
	// are described with [Run].
	Driver         Driver `json:"driver,omitempty"`
	UniqueKey      string `json:"uniqueKey,omitempty"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	ParentID       RunID  `json:"parentId,omitempty"`
	ParentStep     StepID `json:"parentStep,omitempty"`
	Detached       bool   `json:"detached,omitempty"`
	// RootID and Depth are set for either driver.
	RootID   RunID      `json:"rootId,omitempty"`
	Depth    int        `json:"depth,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	// StartAt is the time at which the run starts; nil for at once.
	StartAt *time.Time `json:"startAt,omitempty"`
	// ContinuedFrom is set on the run_created of a run that goes on with the work of another one, which has ended for
	// that: that run. ContinuedAs is set on the run_completed of the latter. Its Seen is the position of the last event
	// that the run's function knew.
	ContinuedFrom RunID `json:"continuedFrom,omitempty"`
	ContinuedAs   RunID `json:"continuedAs,omitempty"`
	// RequestDigest is the digest of the request that started the run. A repetition with the same idempotency key must
	// have the same digest.
	RequestDigest string `json:"requestDigest,omitempty"`
	// Fork is set on the run_created of a run that goes on from events of another one.
	Fork *Fork `json:"fork,omitempty"`
	// Build is set on the run_created of a flow's run: the build of its deployment, with which the digest of the document
	// begins. Versions of flows have the same IDs in other databases, and need not be the same there.
	Build string `json:"build,omitempty"`
	// Limits are the limits that the run needs a slot of, and PriorityMS is by how many milliseconds it goes before those
	// that came with it. Both may be set for either driver.
	Limits     []LimitUse `json:"limits,omitempty"`
	PriorityMS int64      `json:"priorityMs,omitempty"`
	// StepLimits are set on run_created if the policy of the workflow gives limits to steps.
	StepLimits []StepLimits `json:"stepLimits,omitempty"`
	// TimeoutGraceMS is how many milliseconds the run may take to end by itself after its deadline; 0 for none.
	TimeoutGraceMS int64 `json:"timeoutGraceMs,omitempty"`
	// Reason is set on cancel_requested and run_cancelled: the reason given by the caller.
	Reason string `json:"reason,omitempty"`
	// ForcedAt is set on cancel_requested: the time at which the run ends if it has not ended by itself. It is also set
	// on the event that ended a run in that way.
	ForcedAt *time.Time `json:"forcedAt,omitempty"`
	// Cancelled is set on step_failed if the run's function cancelled the step.
	Cancelled bool `json:"cancelled,omitempty"`
	// Late is set on the result of a step that came after the end of the run. It changes no status that was final.
	Late bool `json:"late,omitempty"`
	// Resumed is set on step_started if the run's function makes the attempt itself, and is invoked for that.
	Resumed bool `json:"resumed,omitempty"`
	// Step is set on step_created if the server executes the step.
	Step *StepSpec `json:"step,omitempty"`
	// StepName is set on step_created and, by most clients, on the step's other events.
	StepName string `json:"stepName,omitempty"`
	// Attempt is the number of the attempt according to the client of a step_started. The server has a count of its own,
	// except for runs of [SpecFence] and later.
	Attempt *int `json:"attempt,omitempty"`
	// InBand says that the run's orchestrator wrote the event; set only for runs of [SpecFence] and later. Their
	// run_created counts as in-band without it.
	InBand bool `json:"inBand,omitempty"`
	// ResumeAt is the time at which a wait ends. Its milliseconds must be kept: replay compares it.
	ResumeAt *time.Time `json:"resumeAt,omitempty"`
	// RetryAfter is the earliest time of a retried step's next attempt.
	RetryAfter *time.Time `json:"retryAfter,omitempty"`
	// Token is a hook's token.
	Token string `json:"token,omitempty"`
	// IsWebhook says that the app's public webhook route may resume the hook.
	IsWebhook *bool `json:"isWebhook,omitempty"`
	// Webhook specifies how a hook of a run that the server drives receives webhooks.
	Webhook *WebhookSpec `json:"webhook,omitempty"`
	// Signal and Condition are described with [Hook]. LookBackMS is how many milliseconds a signal may be older than
	// the hook.
	Signal     string `json:"signal,omitempty"`
	Condition  string `json:"condition,omitempty"`
	LookBackMS int64  `json:"lookBackMs,omitempty"`
	// IsSystem says that the SDK created the hook for itself.
	IsSystem *bool `json:"isSystem,omitempty"`
	// TokenRetentionUntil is the time until which a hook keeps its token even if the run ends earlier.
	TokenRetentionUntil *time.Time `json:"tokenRetentionUntil,omitempty"`
	// ResumeID is the idempotency key of a hook_received: a resumption is recorded once, however often it is sent.
	// ResumeDigest is the sender's digest of its payload.
	ResumeID     string `json:"resumeId,omitempty"`
	ResumeDigest string `json:"resumePayloadDigest,omitempty"`
	// MessageID is set on the hook_received of a message to an inbox: the sender's ID, which counts once in the inbox.
	MessageID string `json:"messageId,omitempty"`
	// Via is set on hook_received: the way in which the payload came, one of the Via constants of package webhook. Events
	// of earlier versions have none. Verified is the scheme by which the sender's signature was verified; empty for none.
	Via      string `json:"via,omitempty"`
	Verified string `json:"verified,omitempty"`
	// ConflictingRunID is set on hook_conflict: the run that holds the token.
	ConflictingRunID RunID `json:"conflictingRunId,omitempty"`
	// Force is set on hook_created if the hook may take its token over from the hook of another run. If it has done so,
	// ForceClaimedFrom is that hook, and ForceClaimedBy of that hook's hook_disposed is the new one. ForceRefused is set
	// on a hook_conflict in place of such a hook_created: why it was not allowed.
	Force            bool       `json:"force,omitempty"`
	ForceClaimedFrom *HookClaim `json:"forceClaimedFrom,omitempty"`
	ForceClaimedBy   *HookRef   `json:"forceClaimedBy,omitempty"`
	ForceRefused     string     `json:"forceRefusedReason,omitempty"`
	// ErrorCode classifies a failure; the client chooses it freely.
	ErrorCode string `json:"errorCode,omitempty"`
	// Skipped is set on the step_completed of a step that its run's function has skipped: why.
	Skipped string `json:"skipped,omitempty"`
	// Changes are set on attr_set.
	Changes []AttributeChange `json:"changes,omitempty"`
	// The fields from here to Open are for replaying a function's code, and set on events that its commands made.
	//
	// At is the place in the code that sent the command. Undo is set on step_created: what in the code undoes the step, if
	// what it belongs to fails. Seen is set on the result of a step that the function executed
	// itself: the position of the last event that the code had seen when it got the result. StartedAt and EndedAt are the
	// times of that execution by the function's clock.
	At        string     `json:"at,omitempty"`
	Undo      string     `json:"undo,omitempty"`
	Seen      int64      `json:"seen,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	// Open is set on the first event of an answer: the steps that the function was executing itself when it wrote the
	// answer.
	Open []StepID `json:"open,omitempty"`
	// AllowReserved permits keys that begin with "$" in Changes and Attributes.
	AllowReserved bool `json:"allowReservedAttributes,omitempty"`
}

// EventID is an event's public ID: "evnt_" and its position as 26 zero-padded digits. It has the form of a ULID, as
// clients expect, and sorts like one, but contains no time.
type EventID string

const (
	eventIDPrefix = "evnt_"
	eventIDZeros  = "00000000000000000000000000"
)

// eventIDAt returns the ID of the event at position seq, which is the same in each run.
func eventIDAt(seq int64) EventID {
	var buf [len(eventIDPrefix) + len(eventIDZeros)]byte
	return EventID(AppendEventID(buf[:0], seq))
}

// AppendEventID appends the public ID of the event at position seq of a run.
func AppendEventID(dst []byte, seq int64) []byte {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], seq, 10)
	dst = append(append(dst, eventIDPrefix...), eventIDZeros[len(digits):]...)
	return append(dst, digits...)
}

// Seq returns the event's position. It fails with [ErrInvalid] on any text that eventIDAt does not return.
func (id EventID) Seq() (int64, error) {
	digits, ok := strings.CutPrefix(string(id), eventIDPrefix)
	seq, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || seq < 1 || eventIDAt(seq) != id {
		return 0, Invalid("event ID %q is not %s and 26 digits", id, eventIDPrefix)
	}
	return seq, nil
}
