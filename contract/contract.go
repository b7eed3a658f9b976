// Package contract defines the messages between the server and a function behind a plain HTTP endpoint: the call that
// the server sends, and the commands in the function's answer. docs/function-contract.md describes them for authors of
// functions.
package contract

import (
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Version is the version of the function contract.
const Version = 2

const (
	// MaxCommands limits the commands of one answer.
	MaxCommands = 1000
	// InlineEvents is the maximum number of events that a call to a run's function includes.
	InlineEvents = 1000
	// MaxAnswer limits the size of an answer in bytes. A larger payload could not be sent to the function again.
	MaxAnswer = 16 << 20

	// HeaderInvocation identifies the invocation. The function returns it to prove that its answer is not stale.
	HeaderInvocation = "Stepwell-Invocation"
	// HeaderRun is the ID of the run.
	HeaderRun = "Stepwell-Run"
	// HeaderIdempotencyKey is the same for all attempts of the same work.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderFeatures lists what a function can do beyond workflows and steps, in its answer to OPTIONS.
	HeaderFeatures = "Stepwell-Features"
)

// FlowScheme begins the address of a deployment that is a version of a flow, which the server answers itself.
const FlowScheme = "flow:"

// LockFlows is the statement after which no other transaction changes which IDs with "@" of the project $1 belong to
// flows, and which to apps.
const LockFlows = `SELECT pg_advisory_xact_lock(hashtextextended('stepwell flows ' || $1, 0))`

// Types of calls.
const (
	TypeWorkflow = "workflow"
	TypeStep     = "step"
	// TypeCheck replays a log and executes nothing. Only a function that has named it in [HeaderFeatures] is called with
	// it: another one may take it for TypeWorkflow.
	TypeCheck = "check"
)

// Call is the JSON body that the server POSTs to a function.
type Call struct {
	// Type is TypeWorkflow, TypeStep or TypeCheck.
	Type string `json:"type"`
	// Invocation identifies this call. It is invalid once the call has ended.
	Invocation string `json:"invocation"`
	// Attempt counts the calls for the same events, starting at 1.
	Attempt int    `json:"attempt"`
	Server  Server `json:"server"`
	// Token lets the function send commands for its run, and read the run's log, until the invocation ends.
	Token string `json:"token"`
	Run   Run    `json:"run"`
	// Step is the step to execute; only for TypeStep.
	Step *Step `json:"step,omitempty"`
	// Known is the position up to which the function knew the log when the run's last invocation was answered; nil for
	// TypeStep.
	Known *int64 `json:"known,omitempty"`
	// HooksURL is the beginning of the URL of every webhook, which a token completes.
	HooksURL string `json:"hooksUrl,omitempty"`
	// LogBytes is the size of the payloads of Events, in bytes.
	LogBytes int64 `json:"logBytes,omitempty"`
	// Keep is the process that keeps the state of the run, and Since the position up to which it knows the log; empty and
	// 0 if none does.
	Keep  string `json:"keep,omitempty"`
	Since int64  `json:"since,omitempty"`
	// Events is the run's log after Since, as much as fits; only for TypeWorkflow.
	Events []json.RawMessage `json:"events,omitempty"`
	// After is the position after which the function must read the rest of the log; nil if Events is complete.
	After *int64 `json:"after,omitempty"`
}

// Server tells the function in each call what the server can do.
type Server struct {
	Contract int      `json:"contract"`
	Features []string `json:"features"`
}

// features are the names of what this server can do beyond version 1 of the contract. Answers are read strictly, so a
// function may use a field or a command only if the call offers its feature.
var features = []string{
	"seen", "commands", "at", "known", "firstAttempt", "retryAfter",
	"cancelStep", "cancelWait", "cancel",
	"await", "keep", "blocked",
	"store", "inbox", "skipped",
	"http", "async", "emit", "startRun", "notReady", "answer", "undo", "heartbeat", "continueAs", "reply",
	"stream",
}

// Offer returns what this version of the server offers.
func Offer() Server { return Server{Contract: Version, Features: features} }

// Run describes the run in a call.
type Run struct {
	ID         entities.RunID    `json:"id"`
	Workflow   string            `json:"workflow"`
	Deployment string            `json:"deployment"`
	Attributes map[string]string `json:"attributes"`
	Key        string            `json:"key,omitempty"`
	ParentID   entities.RunID    `json:"parentId,omitempty"`
	CreatedAt  time.Time         `json:"createdAt"`
	Deadline   *time.Time        `json:"deadline,omitempty"`
	Input      json.RawMessage   `json:"input,omitempty"`
	// Store has the values of the run's store when the call was made. It is missing if there are none, or if they have
	// more than [kv.MaxInCall] bytes together.
	Store map[string]json.RawMessage `json:"store,omitempty"`
}

// About describes a run, without its input.
func About(r entities.Run) Run {
	return Run{
		ID: r.ID, Workflow: r.WorkflowName, Deployment: r.DeploymentID, Attributes: r.Attributes, Key: r.UniqueKey,
		ParentID: r.ParentID, CreatedAt: r.CreatedAt, Deadline: r.Deadline,
	}
}

// Step describes the step to execute in a call.
type Step struct {
	ID       entities.StepID `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input,omitempty"`
	Deadline *time.Time      `json:"deadline,omitempty"`
	// Progress is what an earlier attempt last said about how far it was, with a heartbeat; nil if none did.
	Progress json.RawMessage `json:"progress,omitempty"`
	// Callback is where the result may be sent after the answer 202; only for a step with async.
	Callback *Callback `json:"callback,omitempty"`
}

// Callback is where the result of a step may be sent until the step's deadline.
type Callback struct {
	// URL takes a POST with the result. It is only a path if the server does not know its public address.
	URL string `json:"url"`
	// Token is the credential for it, and for nothing else.
	Token string `json:"token"`
}

// Failure is an error in the JSON form that functions send and the log stores.
type Failure struct {
	Message string          `json:"message"`
	Code    string          `json:"code,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Text returns the failure as JSON for the log.
func (f Failure) Text() []byte {
	text, err := json.Marshal(f)
	if err != nil {
		text, _ = json.Marshal(Failure{Message: f.Message, Code: f.Code}) // the details are not valid JSON
	}
	return text
}

// Payload returns a failure without details as JSON for the log.
func Payload(message, code string) []byte { return Failure{Message: message, Code: code}.Text() }
