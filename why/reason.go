// Package why explains why a run is not done: what it waits for, what comes next and when, and what helps. [Explain] is
// pure; [Of] reads the facts in one snapshot. Whether a run is stranded follows from the same SQL as in the sweeper of
// package queue/cluster.
package why

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// Kind is a kind of reason why a run is not done. Each has a sentence: see [Reason.Sentence].
type Kind string

// The kinds, ordered by how much they need a person.
const (
	// Stranded: nothing would move the run. The sweeper wakes it.
	Stranded Kind = "stranded"
	// ProjectPaused: an operator has paused the project.
	ProjectPaused Kind = "project_paused"
	// Paused: the run, its workflow, or a deployment that would be called is paused.
	Paused Kind = "paused"
	// Parked: a call failed so often that it is not made again until somebody retries it.
	Parked Kind = "parked"
	// DeploymentMissing: a call is for a deployment that is not registered.
	DeploymentMissing Kind = "deployment_missing"
	// Diverged: the function says that the run's log does not match its code.
	Diverged Kind = "diverged"
	// FunctionRefuses: the function refuses to go on, and gives a code.
	FunctionRefuses Kind = "function_refuses"
	// AnswerRefused: the server refused the function's answer.
	AnswerRefused Kind = "answer_refused"
	// LimitDeadlock: a slot is held by runs that wait for each other's slots, so it is never free.
	LimitDeadlock Kind = "limit_deadlock"
	// LimitPaused: a limit that the run or a step needs is paused.
	LimitPaused Kind = "limit_paused"
	// Unhealthy: the probes of the deployment fail, so it is not called. No attempt is used up.
	Unhealthy Kind = "unhealthy"
	// Unreachable: calls do not reach the function. No attempt is used up.
	Unreachable Kind = "unreachable"
	// ConnectionClosed: the function takes each call, and closes the connection before it answers.
	ConnectionClosed Kind = "connection_closed"
	// FunctionFails: the function of the run, or a message of its app, fails and is called again.
	FunctionFails Kind = "function_fails"
	// TaskFails: a task of the server for the run fails and is tried again.
	TaskFails Kind = "task_fails"
	// StepBackoff: an attempt at a step failed, and the next one comes after a pause.
	StepBackoff Kind = "step_backoff"
	// Cancelling: the run was asked to cancel, and is ended after its grace.
	Cancelling Kind = "cancelling"
	// Called: the run's function is being called, or its app works on a message.
	Called Kind = "called"
	// StepRunning: an attempt at a step is under way.
	StepRunning Kind = "step_running"
	// StepQueued: an attempt at a step is due, and waits for a free slot.
	StepQueued Kind = "step_queued"
	// Queued: the call of the run's function is due, and waits for a free slot.
	Queued Kind = "queued"
	// Client: a message for the app of the Workflow SDK is due, and the app has not taken it.
	Client Kind = "client"
	// Unscheduled: something has just happened, and nothing that follows from it is there yet. If that remains so, the
	// run counts as stranded.
	Unscheduled Kind = "unscheduled"
	// StartDelay: the run was started for a later time.
	StartDelay Kind = "start_delay"
	// LimitFull: all slots of a limit are taken.
	LimitFull Kind = "limit_full"
	// DeploymentFull: as many calls of the deployment are under way as it may have at once.
	DeploymentFull Kind = "deployment_full"
	// Rate: as many have begun as a limit lets begin in its time.
	Rate Kind = "rate"
	// Child: a child run has not ended.
	Child Kind = "child"
	// Hook, Webhook and Signal: nobody has resumed a hook, which waits for anybody, for a request, or for a signal.
	Hook    Kind = "hook"
	Webhook Kind = "webhook"
	Signal  Kind = "signal"
	// Approval: an approval is not decided.
	Approval Kind = "approval"
	// Wait: the run sleeps.
	Wait Kind = "wait"
	// Inbox: an inbox is open for messages.
	Inbox Kind = "inbox"
)

// Verdict is the state of a run in one word.
type Verdict string

// The verdicts.
const (
	VerdictScheduled Verdict = "scheduled" // its start is later
	VerdictWorking   Verdict = "working"   // something is done for it, or will be at once
	VerdictRetrying  Verdict = "retrying"  // something failed, and is tried again
	VerdictWaiting   Verdict = "waiting"   // for time, for other runs, or for the world
	VerdictBlocked   Verdict = "blocked"   // until somebody does something
	VerdictStranded  Verdict = "stranded"  // until the sweeper wakes it
	VerdictEnded     Verdict = "ended"
)

// verdicts has the verdict of a run whose first reason is of the kind, in the order of reasons.
var verdicts = []struct {
	kind    Kind
	verdict Verdict
}{
	{Stranded, VerdictStranded},
	{ProjectPaused, VerdictBlocked}, {Paused, VerdictBlocked}, {Parked, VerdictBlocked},
	{DeploymentMissing, VerdictBlocked},
	{Diverged, VerdictBlocked}, {FunctionRefuses, VerdictBlocked},
	{AnswerRefused, VerdictBlocked}, {LimitDeadlock, VerdictBlocked}, {LimitPaused, VerdictBlocked},
	{Unhealthy, VerdictRetrying}, {Unreachable, VerdictRetrying}, {ConnectionClosed, VerdictRetrying},
	{FunctionFails, VerdictRetrying}, {TaskFails, VerdictRetrying}, {StepBackoff, VerdictRetrying},
	{Cancelling, VerdictWorking}, {Called, VerdictWorking}, {StepRunning, VerdictWorking}, {StepQueued, VerdictWorking},
	{Queued, VerdictWorking}, {Client, VerdictWorking}, {Unscheduled, VerdictWorking},
	{StartDelay, VerdictScheduled},
	{LimitFull, VerdictWaiting}, {DeploymentFull, VerdictWaiting}, {Rate, VerdictWaiting},
	{Child, VerdictWaiting}, {Hook, VerdictWaiting}, {Webhook, VerdictWaiting}, {Signal, VerdictWaiting},
	{Approval, VerdictWaiting}, {Wait, VerdictWaiting}, {Inbox, VerdictWaiting},
}

// Kinds returns all kinds, in the order of reasons.
func Kinds() []Kind {
	list := make([]Kind, len(verdicts))
	for i, v := range verdicts {
		list[i] = v.kind
	}
	return list
}

// rank is the place of the kind in the order of reasons.
func (k Kind) rank() int { return slices.Index(Kinds(), k) }

// Remedy is an operation of the API that helps, by its operationId.
type Remedy string

// The remedies. Their parameters are in the reason.
const (
	RetryMessage   Remedy = "retryMessage"
	DiscardMessage Remedy = "discardMessage"
	// PutDeployment registers the reason's deployment, moves it to where it can be reached, or lets it have more calls.
	PutDeployment Remedy = "putDeployment"
	// ResumeHook resumes the hook, or votes if it is an approval.
	ResumeHook  Remedy = "resumeHook"
	PostSignal  Remedy = "postSignal"
	SendMessage Remedy = "sendMessage"
	// PutLimit gives the reason's limit more slots, or resumes it.
	PutLimit Remedy = "putLimit"
	// PutProject resumes the project that the reason names.
	PutProject Remedy = "putProject"
	// RemovePause ends the reason's pause.
	RemovePause Remedy = "removePause"
	// ExplainRun explains the child run.
	ExplainRun Remedy = "explainRun"
	CancelRun  Remedy = "cancelRun"
)

// Remedies returns all remedies.
func Remedies() []Remedy {
	return []Remedy{
		RetryMessage, DiscardMessage, PutDeployment, ResumeHook, PostSignal, SendMessage, PutLimit, PutProject,
		RemovePause, ExplainRun, CancelRun,
	}
}

// Reason is one reason why a run is not done. Fields that do not apply are empty.
type Reason struct {
	Kind Kind
	// StepID, HookID and WaitID name the part of the run that the reason is about. Name is the name of the step, the
	// inbox, the signal or the project, or the token of a hook of the Workflow SDK, whose ID says nothing.
	StepID entities.StepID
	HookID entities.HookID
	WaitID entities.WaitID
	Name   string
	// Condition is the condition on signals, which may quote payloads.
	Condition string
	// ChildID is the child run that is waited for, and ChildStatus its status.
	ChildID     entities.RunID
	ChildStatus entities.RunStatus
	// MessageID is the message of the queue that the reason is about.
	MessageID string
	// DeploymentID is the deployment whose function is called or to be called.
	DeploymentID string
	// Server is the process that makes the call, and Host its machine; empty if the function has extended its lease.
	Server, Host string
	// Attempt is the attempt at the step that is under way or comes next, and MaxAttempts how many there are; 0 if that
	// is the client's business.
	Attempt, MaxAttempts int
	// Failures is how often a call has failed, or has not reached the function; how often a stranded run was woken.
	Failures int
	// Backlog is how many messages of the project are due and wait for a slot, at most [MaxBacklog].
	Backlog int
	// Limit is the limit whose slot is awaited, and Key the key. Held of its Slots are taken: those with the key, or
	// those with all keys together if InAll is set. Holders are some that hold them, the longest first. Ahead is how many
	// wait before it with the same key, up to 10,000. Of a deployment whose calls have a bound, Held of Slots calls are
	// under way, and Ahead messages are before it.
	Limit, Key         string
	Held, Slots, Ahead int
	InAll              bool
	Holders            []Holder
	// Circle are the runs that wait for each other's slots: the first one holds the awaited slot, and the last one waits
	// for a slot of one before it.
	Circle []entities.RunID
	// Pause is what holds up the run, or one of its steps; nil if nothing is paused.
	Pause *hold.Pause
	// Votes is how many have voted for what is to be approved.
	Votes int
	// Detail describes for which event or state of a stranded run a message is missing.
	Detail string
	// Since is when it began, as far as that is known.
	Since *time.Time
	// At is when the run goes on by itself; Until is when what is under way ends at the latest.
	At, Until *time.Time
	// Error is the last failure.
	Error *Error
	// Remedies are what helps, the best first.
	Remedies []Remedy
}

// WithoutToken returns the reason as clients get it that may not see the tokens of hooks.
func (r Reason) WithoutToken() Reason {
	if r.Kind == Hook {
		r.Name = ""
	}
	return r
}

// Error is a failure. Without a message, the event at Seq may have one.
type Error struct {
	Code    string
	Message string
	Seq     int64
}

// Explanation says why a run is not done, or how it ended.
type Explanation struct {
	Run     entities.Run
	Verdict Verdict
	// At is the time of the snapshot, by the database's clock.
	At time.Time
	// Reasons are ordered by how much they need a person. A run that has not ended has at least one.
	Reasons []Reason
	// Next is the reason that ends first by itself; nil if none does at a known time.
	Next *Reason
	// Open counts the run's parts that are open; of each kind, at most [MaxParts] have a reason.
	Open Parts
}

// Parts counts parts of a run.
type Parts struct{ Steps, Hooks, Waits int }
