package entities

import "time"

// Run is one execution of a workflow, as the fold of its log. What users sent is not here: input and
// execution context are in event 1, the output or error in the event at EndSeq.
type Run struct {
	ID      RunID
	Project Project
	// DeploymentID says whose functions execute the run; it never changes.
	DeploymentID string
	WorkflowName string
	Status       RunStatus
	// SpecVersion is the protocol version of the app that started the run (protocol §8).
	SpecVersion int
	// Attributes are the user's labels; never nil once stored.
	Attributes map[string]string
	// Driver says who continues the run.
	Driver Driver
	// UniqueKey is one that only one of the workflow's live runs has; empty for none.
	UniqueKey string
	// IdempotencyKey is what its starter may repeat the start by; unique in the project. Empty for none.
	IdempotencyKey string
	// ParentID is the run that started this one; empty when none did. ParentStep is the step of it that waits
	// for the result, if one does.
	ParentID   RunID
	ParentStep StepID
	// Detached says that the run goes on when its parent ends.
	Detached bool
	// Deadline is when the run fails if it has not ended by then; nil for never.
	Deadline *time.Time
	// ErrorCode is set on failed runs whose client gave one.
	ErrorCode string
	// LastSeq is the position of the newest event.
	LastSeq int64
	// EndSeq is the position of the event that ended the run; 0 while it lives.
	EndSeq    int64
	CreatedAt time.Time
	// UpdatedAt is the time of the newest event.
	UpdatedAt time.Time
	// StartedAt is set by the first run_started and never changes: clients derive IDs from it.
	StartedAt *time.Time
	// CompletedAt is set exactly when the run has ended.
	CompletedAt *time.Time
}

// Driver says who continues a run.
type Driver string

// The drivers of runs.
const (
	// DriverClient is the Workflow SDK: its functions send each other messages.
	DriverClient Driver = ""
	// DriverServer is this server: it invokes the run's function whenever the run can move.
	DriverServer Driver = "server"
)

// SpecDriven is the protocol version of runs that the server continues: the first whose payloads are opaque
// to all who read them through the wire protocol (protocol §8).
const SpecDriven = 2
