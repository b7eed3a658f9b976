package entities

import (
	"fmt"
	"maps"
	"slices"
)

// RunStatus is where a run stands. RunNone is the status of a run that does not exist.
type RunStatus string

// The run statuses; the last three are terminal.
const (
	RunNone      RunStatus = "none"
	RunPending   RunStatus = "pending"   // created; waits for its first delivery
	RunRunning   RunStatus = "running"   // the app's workflow function has seen it
	RunCompleted RunStatus = "completed" // returned a value
	RunFailed    RunStatus = "failed"    // ended by an error
	RunCancelled RunStatus = "cancelled" // ended from outside
)

// Ended reports whether the run is over. An ended run never leaves its status (I3).
func (s RunStatus) Ended() bool {
	return s == RunCompleted || s == RunFailed || s == RunCancelled
}

// RunStatuses returns the statuses that the row of a run can have: all but [RunNone].
func RunStatuses() []RunStatus {
	return []RunStatus{RunPending, RunRunning, RunCompleted, RunFailed, RunCancelled}
}

// Known reports whether the row of a run can have the status.
func (s RunStatus) Known() bool { return slices.Contains(RunStatuses(), s) }

// StepStatus is where a step stands. StepNone is the status of a step that does not exist.
type StepStatus string

// The step statuses; the last two are terminal.
const (
	StepNone      StepStatus = "none"
	StepPending   StepStatus = "pending"   // created, or waiting for its next attempt
	StepRunning   StepStatus = "running"   // an attempt is under way
	StepCompleted StepStatus = "completed" // has a result
	StepFailed    StepStatus = "failed"    // out of attempts, or fatal
)

// HookStatus is where a hook stands. Only active hooks are rows; the other two are told apart by the log.
type HookStatus string

// The hook statuses.
const (
	HookNone     HookStatus = "none"     // its creation is not in the log
	HookActive   HookStatus = "active"   // holds its token and can be resumed
	HookDisposed HookStatus = "disposed" // was there once, or lost the contest for its token
)

// WaitStatus is where a wait stands. WaitNone is the status of a wait that does not exist.
type WaitStatus string

// The wait statuses.
const (
	WaitNone      WaitStatus = "none"
	WaitWaiting   WaitStatus = "waiting"   // its time has not been reported as come
	WaitCompleted WaitStatus = "completed" // over
)

// The kinds of entities, as [TransitionError] names them.
const (
	KindRun  = "run"
	KindStep = "step"
	KindHook = "hook"
	KindWait = "wait"
)

// Refusal is why a transition table turns an event down.
type Refusal string

// The refusals. Protocol §3.3–3.8 says which one a client expects where.
const (
	Conflict Refusal = "conflict" // a duplicate, or the entity is past this
	Ended    Refusal = "ended"    // the run is over
	Missing  Refusal = "missing"  // there is no such entity
	Repeat   Refusal = "repeat"   // already so: answered as success, nothing is written
)

// Cell is what one event does to an entity in one status: it moves it To a status, or is refused by No.
type Cell[S ~string] struct {
	To S
	No Refusal
}

// Table holds a cell for every event of a kind of entity and every status of that kind.
type Table[S ~string] map[EventType]map[S]Cell[S]

// Runs is what happens to runs.
var Runs = Table[RunStatus]{
	EventRunCreated: {
		RunNone: {To: RunPending}, RunPending: {No: Conflict}, RunRunning: {No: Conflict},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunStarted: {
		RunNone: {No: Missing}, RunPending: {To: RunRunning}, RunRunning: {No: Repeat},
		RunCompleted: {No: Ended}, RunFailed: {No: Ended}, RunCancelled: {No: Ended},
	},
	EventRunCompleted: {
		RunNone: {No: Missing}, RunPending: {To: RunCompleted}, RunRunning: {To: RunCompleted},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunFailed: {
		RunNone: {No: Missing}, RunPending: {To: RunFailed}, RunRunning: {To: RunFailed},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunCancelled: {
		RunNone: {No: Missing}, RunPending: {To: RunCancelled}, RunRunning: {To: RunCancelled},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {To: RunCancelled},
	},
	EventAttrSet: {
		RunNone: {No: Missing}, RunPending: {To: RunPending}, RunRunning: {To: RunRunning},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
}

// Steps is what happens to steps while their run is alive. A running step may be started again: that is
// a redelivery after a crash.
var Steps = Table[StepStatus]{
	EventStepCreated: {
		StepNone: {To: StepPending}, StepPending: {No: Conflict}, StepRunning: {No: Conflict},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepStarted: {
		StepNone: {No: Missing}, StepPending: {To: StepRunning}, StepRunning: {To: StepRunning},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepCompleted: {
		StepNone: {No: Missing}, StepPending: {To: StepCompleted}, StepRunning: {To: StepCompleted},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepFailed: {
		StepNone: {No: Missing}, StepPending: {To: StepFailed}, StepRunning: {To: StepFailed},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepRetrying: {
		StepNone: {No: Missing}, StepPending: {To: StepPending}, StepRunning: {To: StepPending},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
}

// StepsAfterEnd is what happens to steps once their run has ended: an attempt under way may still
// report, nothing new begins (protocol §3.3).
var StepsAfterEnd = Table[StepStatus]{
	EventStepCreated: {
		StepNone: {No: Conflict}, StepPending: {No: Conflict}, StepRunning: {No: Conflict},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepStarted: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {To: StepRunning},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepCompleted: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {To: StepCompleted},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepFailed: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {To: StepFailed},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepRetrying: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {To: StepPending},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
}

// SpecReplays is the last protocol version whose clients do nothing but replay when their run is woken, and have their
// steps called on their own (protocol §5.3, §8).
const SpecReplays = 3

// SpecSlots is the protocol version from which on event IDs are positions, and from which on no attempt of a
// step begins once its run has ended (protocol §3.3, §8).
const SpecSlots = 6

// StepsAfterEndNext is [StepsAfterEnd] for runs of version [SpecSlots] and later.
var StepsAfterEndNext = func() Table[StepStatus] {
	t := maps.Clone(StepsAfterEnd)
	t[EventStepStarted] = maps.Clone(t[EventStepStarted])
	t[EventStepStarted][StepRunning] = Cell[StepStatus]{No: Ended}
	return t
}()

// Hooks is what happens to hooks while their run is alive. hook_conflict is what becomes of a
// hook_created whose token another live hook holds; no client may write it.
var Hooks = Table[HookStatus]{
	EventHookCreated:  {HookNone: {To: HookActive}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookConflict: {HookNone: {To: HookDisposed}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookReceived: {HookNone: {No: Missing}, HookActive: {To: HookActive}, HookDisposed: {No: Missing}},
	EventHookDisposed: {HookNone: {No: Missing}, HookActive: {To: HookDisposed}, HookDisposed: {No: Missing}},
}

// HooksAfterEnd is what happens to hooks once their run has ended: it took them along, but for those that
// are retained. Nothing more is received (I7); a retained hook can still be disposed of.
var HooksAfterEnd = Table[HookStatus]{
	EventHookCreated:  {HookNone: {No: Conflict}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookConflict: {HookNone: {No: Conflict}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookReceived: {HookNone: {No: Missing}, HookActive: {No: Missing}, HookDisposed: {No: Missing}},
	EventHookDisposed: {HookNone: {No: Missing}, HookActive: {To: HookDisposed}, HookDisposed: {No: Missing}},
}

// Waits is what happens to waits while their run is alive. Clients tolerate only a conflict when they
// complete a wait that is not there (protocol §3.8).
var Waits = Table[WaitStatus]{
	EventWaitCreated:   {WaitNone: {To: WaitWaiting}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict}},
	EventWaitCompleted: {WaitNone: {No: Conflict}, WaitWaiting: {To: WaitCompleted}, WaitCompleted: {No: Conflict}},
}

// WaitsAfterEnd is what happens to waits once their run has ended: it took them along.
var WaitsAfterEnd = Table[WaitStatus]{
	EventWaitCreated:   {WaitNone: {No: Conflict}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict}},
	EventWaitCompleted: {WaitNone: {No: Conflict}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict}},
}

// Next looks up where event moves the entity of the given kind and ID. A refusal is a *[TransitionError].
func (t Table[S]) Next(kind, id string, status S, event EventType) (S, error) {
	row, ok := t[event]
	if !ok {
		return status, Invalid("%q is not an event of a %s", event, kind)
	}
	cell, ok := row[status]
	if !ok {
		return status, fmt.Errorf("%s %s: no transition for %s in status %q", kind, id, event, status)
	}
	if cell.No != "" {
		return status, &TransitionError{Kind: kind, ID: id, Status: string(status), Event: event, Refusal: cell.No}
	}
	return cell.To, nil
}

func (t Table[S]) has(event EventType) bool {
	_, ok := t[event]
	return ok
}
