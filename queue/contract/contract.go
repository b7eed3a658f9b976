// Package contract is what a plain HTTP endpoint and the server say to each other when the endpoint is the function
// of a run: the invocation that the server sends, and the commands that the function answers with.
// docs/function-contract.md describes it for those who write functions.
//
// It imports packages entities, entities/strictjson and eventlog.
package contract

import (
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// MaxCommands is how many commands one answer may have.
	MaxCommands = 1000
	// MaxAnswer is how many bytes an answer may have: no more than a call can show of a payload.
	MaxAnswer = 16 << 20

	// HeaderInvocation has the name of an invocation, by which whoever runs it shows that it is not stale.
	HeaderInvocation = "Stepwell-Invocation"
	// HeaderRun has the ID of the run.
	HeaderRun = "Stepwell-Run"
	// HeaderIdempotencyKey is the same for all attempts at the same thing.
	HeaderIdempotencyKey = "Idempotency-Key"
)

// The types of calls.
const (
	TypeWorkflow = "workflow"
	TypeStep     = "step"
)

// Call is what the server POSTs to a function, as JSON.
type Call struct {
	// Type is one of the types of calls.
	Type string `json:"type"`
	// Invocation names this call. It is good for nothing once the call is over.
	Invocation string `json:"invocation"`
	// Attempt is how many calls there were for the same news, with this one.
	Attempt int `json:"attempt"`
	Run     Run `json:"run"`
	// Step is what to do, when the type says so.
	Step *Step `json:"step,omitempty"`
	// Events is the run's log, from its first event on, as far as it fits, when the type is that of a workflow.
	Events []json.RawMessage `json:"events,omitempty"`
	// After is the position behind which the rest of the log is to be read; nil when Events are all.
	After *int64 `json:"after,omitempty"`
}

// Run is what a call says about the run.
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
}

// About is what calls say about a run; its input is to be added.
func About(r entities.Run) Run {
	return Run{
		ID: r.ID, Workflow: r.WorkflowName, Deployment: r.DeploymentID, Attributes: r.Attributes, Key: r.UniqueKey,
		ParentID: r.ParentID, CreatedAt: r.CreatedAt, Deadline: r.Deadline,
	}
}

// Step is what a call says about the step to execute.
type Step struct {
	ID       entities.StepID `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input,omitempty"`
	Deadline *time.Time      `json:"deadline,omitempty"`
}

// Failure is an error as functions and the log have it.
type Failure struct {
	Message string          `json:"message"`
	Code    string          `json:"code,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Text is the failure as the log keeps it.
func (f Failure) Text() []byte {
	text, err := json.Marshal(f)
	if err != nil {
		text, _ = json.Marshal(Failure{Message: f.Message, Code: f.Code}) // the details are no JSON
	}
	return text
}

// Payload is a failure as the log keeps it.
func Payload(message, code string) []byte { return Failure{Message: message, Code: code}.Text() }
