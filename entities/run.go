package entities

import (
	"cmp"
	"time"

	"github.com/stepwell-dev/stepwell/entities/await"
)

// Run is one execution of a workflow: the fold of its log, except for Await. Payloads stay in the log: the input and
// the execution context in event 1, the output or error in the event at EndSeq.
type Run struct {
	ID      RunID
	Project Project
	// DeploymentID is the deployment whose functions execute the run; it never changes.
	DeploymentID string
	WorkflowName string
	Status       RunStatus
	// SpecVersion is the protocol version of the app that started the run (protocol §8).
	SpecVersion int
	// Attributes are the user's labels; never nil once stored.
	Attributes map[string]string
	// Driver selects how the run is continued.
	Driver Driver
	// UniqueKey is unique among the live runs of the workflow; empty for none.
	UniqueKey string
	// IdempotencyKey makes a repeated start return this run; unique in the project. Empty for none.
	IdempotencyKey string
	// ParentID is the run that started this one; empty for none. ParentStep is the parent's step that waits for the
	// result; empty if none does.
	ParentID   RunID
	ParentStep StepID
	// Detached says that the run continues when its parent ends.
	Detached bool
	// RootID is the first of the runs that led to this one, one after the other: each has started the next one as a child
	// or in another way, or has sent the signal or come to the end that started it. Empty if nothing but a client, a
	// webhook or a schedule did. Depth is how many they are.
	RootID RunID
	Depth  int
	// ContinuedFrom is the run with whose work this one goes on, and ContinuedAs the run that goes on with that of this
	// one, which has ended; empty for none. The latter has its key, store and inboxes, and reports to its parent.
	ContinuedFrom, ContinuedAs RunID
	// ForkOf is the run whose first events this one begins with, and ForkSeq how many these are; empty and 0 for a run
	// that begins by itself.
	ForkOf  RunID
	ForkSeq int64
	// Limits are the limits that the run needs a slot of; nil for none. It starts once it has all of them, and holds them
	// until it ends.
	Limits []LimitUse
	// StepLimits are the limits that the policy of its workflow gives the run's steps; nil for none.
	StepLimits []StepLimits
	// Deadline is the time at which the run fails if it has not ended; nil for none.
	Deadline *time.Time
	// ForcedAt is set once the run was asked to cancel: the time at which it ends if it has not ended by itself.
	ForcedAt *time.Time
	// ErrorCode is set on failed runs if the client sent one.
	ErrorCode string
	// StoreSeq is the position of the last event that wrote to the run's store; 0 if none has.
	StoreSeq int64
	// LastSeq is the position of the newest event.
	LastSeq int64
	// SeqInBand is how many positions of the log the run's orchestrator has taken; 0 for runs before [SpecFence].
	SeqInBand int64
	// EndSeq is the position of the event that ended the run; 0 before the end.
	EndSeq    int64
	CreatedAt time.Time
	// UpdatedAt is the time of the newest event.
	UpdatedAt time.Time
	// StartedAt is set by the first run_started and never changes: clients derive IDs from it.
	StartedAt *time.Time
	// CompletedAt is set if and only if the run has ended.
	CompletedAt *time.Time
	// Await is what the run's function waits for, if it has said so; nil if every event has the run invoked, and once
	// the run has to be invoked. It must not be changed.
	Await *await.Pending
}

// Fenced reports whether the run has a fence: see [SpecFence].
func (r *Run) Fenced() bool { return r.SpecVersion >= SpecFence }

// Descend returns the root and the depth of a run that this one leads to.
func (r *Run) Descend() (root RunID, depth int) { return cmp.Or(r.RootID, r.ID), r.Depth + 1 }

// LimitUse names a limit that a run or a step needs a slot of, and which of its slots: those of the key.
type LimitUse struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
	// Tenant is who takes turns with others if the limit is fair; the key if it is empty.
	Tenant string `json:"tenant,omitempty"`
	// Cost is how many slots it takes; 0 for one.
	Cost int `json:"cost,omitempty"`
}

// StepLimits are the limits of a run's steps with a name.
type StepLimits struct {
	Step   string     `json:"step"`
	Limits []LimitUse `json:"limits"`
	// PriorityMS is as in [StepSpec].
	PriorityMS int64 `json:"priorityMs,omitempty"`
}

// Driver selects how a run is continued: by the client or by the server.
type Driver string

// The drivers.
const (
	// DriverClient is the Workflow SDK, whose functions continue the run by sending each other messages.
	DriverClient Driver = ""
	// DriverServer is this server, which invokes the run's function whenever the run can make progress.
	DriverServer Driver = "server"
)
