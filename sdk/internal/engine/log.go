package engine

import (
	"encoding/json"
	"time"
)

// Event is an event of the run's log, as the function contract describes it.
type Event struct {
	Seq     int64           `json:"seq"`
	Type    string          `json:"type"`
	ID      string          `json:"correlationId"`
	At      time.Time       `json:"createdAt"`
	Data    Data            `json:"data"`
	Payload json.RawMessage `json:"payload"`

	// Stored has what a step wrote to the run's store with its result, by key. The engine sets it when it delivers
	// results.
	Stored map[string]json.RawMessage `json:"-"`
}

// Data is the part of an event's data that the engine reads.
type Data struct {
	StepName  string `json:"stepName"`
	ErrorCode string `json:"errorCode"`
	// Place is the line of code that asked for what the event created, as file:line.
	Place string `json:"at"`
	Recorded
	// RetryAfter is when a step that failed is to be executed again.
	RetryAfter time.Time `json:"retryAfter"`
	// Open lists the inline operations that were in progress when the event was written.
	Open []string `json:"open"`
	// ConflictingRunID is the run that has the token of a hook.
	ConflictingRunID string `json:"conflictingRunId"`
	// ContinuedFrom is the run with whose work a new run goes on.
	ContinuedFrom string `json:"continuedFrom"`
	// ContinuedAs is the run as which a run goes on that has ended.
	ContinuedAs string `json:"continuedAs"`
	// Reason is why somebody has asked to cancel the run.
	Reason string `json:"reason"`
	// MessageID is the sender's ID of a message to an inbox.
	MessageID string `json:"messageId"`
	// Verified is the scheme by which the sender of a payload was verified.
	Verified string `json:"verified"`
	// Attributes are those that a run has from its beginning, and Changes are changes of them.
	Attributes map[string]string `json:"attributes"`
	Changes    []Change          `json:"changes"`
	// Fork is set on the first event of a run that goes on from events of another one.
	Fork struct {
		Seed string `json:"seed"`
	} `json:"fork"`
	// Step describes a step that was created.
	Step struct {
		ChildID string `json:"childId"`
	} `json:"step"`
}

// Change is a change of an attribute. Its value is null if the attribute is removed.
type Change struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// Recorded describes the execution of an inline operation.
type Recorded struct {
	// Seen is the position of the last world event that was delivered before the result.
	Seen int64 `json:"seen"`
	// StartedAt and EndedAt are the times of the execution. Only results that the function recorded by itself have them.
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt"`
}

// IsRecorded reports whether the function recorded the result by itself.
func (r Recorded) IsRecorded() bool { return !r.EndedAt.IsZero() }

// Kind is a kind of operation.
type Kind string

// The kinds of operations. Each has its own space of IDs, except that inline operations and children are steps.
const (
	KindStep      Kind = "step" // executed by a call of its own
	KindInline    Kind = "inline step"
	KindMark      Kind = "mark" // an inline step that is recorded without being executed
	KindChild     Kind = "child run"
	KindReply     Kind = "reply" // to a message: a step that has completed
	KindWait      Kind = "wait"
	KindHook      Kind = "hook"
	KindCloseHook Kind = "closing of a hook"
	KindAttribute Kind = "attributes"

	KindStore      Kind = "store"
	KindOpenInbox  Kind = "inbox"
	KindRespond    Kind = "response"
	KindCancelStep Kind = "cancellation of a step"
	KindCancelWait Kind = "cancellation of a wait"
)

// creates maps the types of events that create an operation to their space of IDs.
var creates = map[string]string{
	"step_created": "step", "wait_created": "wait", "hook_created": "hook", "hook_conflict": "hook",
}

// results maps the types of events that are delivered to the space of their operation.
var results = map[string]string{
	"step_completed": "step", "step_failed": "step", "wait_completed": "wait", "hook_received": "hook",
	"hook_conflict": "hook", "cancel_requested": noSpace, "attr_set": noSpace,
}

// noSpace is the space of events that are delivered to the run as a whole.
const noSpace = ""

// settled maps the types of events that show that an idempotent command was carried out to the spaces of its operation.
// Such a command may also leave no event, because it changed nothing.
var settled = map[string][]string{
	"hook_disposed": {"close"}, "attr_set": {"attribute"}, "store_set": {"store"}, "hook_created": {"inbox"},
	"step_completed": {"cancel step"}, "step_failed": {"cancel step"},
	"wait_completed": {"cancel wait"}, "wait_cancelled": {"cancel wait"},
}

// space returns the space of IDs of a kind.
func (k Kind) space() string {
	switch k {
	case KindStep, KindInline, KindMark, KindChild, KindReply:
		return "step"
	case KindCloseHook:
		return "close"
	case KindAttribute:
		return "attribute"
	case KindCancelStep:
		return "cancel step"
	case KindCancelWait:
		return "cancel wait"
	default:
		return string(k)
	}
}

// idempotent reports whether operations of this kind may leave no event.
func (k Kind) idempotent() bool {
	switch k {
	case KindCloseHook, KindAttribute, KindStore, KindOpenInbox, KindRespond, KindCancelStep, KindCancelWait:
		return true
	default:
		return false
	}
}

// key identifies an operation of a run.
type key struct{ space, id string }
