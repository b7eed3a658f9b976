package entities

import (
	"fmt"
	"maps"
)

// RunStatus is the status of a run.
type RunStatus string

// The run statuses; the last three are final.
const (
	RunNone      RunStatus = "none"      // does not exist
	RunPending   RunStatus = "pending"   // created, and not yet delivered
	RunRunning   RunStatus = "running"   // received by the app's workflow function
	RunCompleted RunStatus = "completed" // the workflow returned a value
	RunFailed    RunStatus = "failed"    // the workflow ended with an error
	RunCancelled RunStatus = "cancelled" // ended by a request from outside
)

// Ended reports whether the run has ended. An ended run never changes its status (I3).
func (s RunStatus) Ended() bool {
	return s == RunCompleted || s == RunFailed || s == RunCancelled
}

// Known reports whether a run can have the status.
func (s RunStatus) Known() bool {
	_, ok := Runs[EventRunStarted][s]
	return ok && s != RunNone
}

// StepStatus is the status of a step.
type StepStatus string

// The step statuses; the last two are final.
const (
	StepNone      StepStatus = "none"      // does not exist
	StepPending   StepStatus = "pending"   // created, or waiting for its next attempt
	StepRunning   StepStatus = "running"   // an attempt is in progress
	StepCompleted StepStatus = "completed" // has a result
	StepFailed    StepStatus = "failed"    // out of attempts, or ended by a fatal error
)

// HookStatus is the status of a hook. Only active hooks have a row; the log tells the other two statuses apart.
type HookStatus string

// The hook statuses.
const (
	HookNone     HookStatus = "none"     // the log does not contain its creation
	HookActive   HookStatus = "active"   // holds its token, and can be resumed
	HookDisposed HookStatus = "disposed" // was active before, or did not get its token
)

// WaitStatus is the status of a wait.
type WaitStatus string

// The wait statuses.
const (
	WaitNone      WaitStatus = "none"      // does not exist
	WaitWaiting   WaitStatus = "waiting"   // not reported as over
	WaitCompleted WaitStatus = "completed" // reported as over
	WaitCancelled WaitStatus = "cancelled" // not needed any more
)

// The kinds of entities, as [TransitionError] names them.
const (
	KindRun  = "run"
	KindStep = "step"
	KindHook = "hook"
	KindWait = "wait"
)

// refusal is the reason why a transition table refuses an event.
type refusal string

// The refusals. Protocol §3.3–3.8 specifies which one a client expects in which case.
const (
	Conflict refusal = "conflict" // a duplicate, or the entity is already past this status
	Ended    refusal = "ended"    // the run has ended
	missing  refusal = "missing"  // the entity does not exist
	Repeat   refusal = "repeat"   // nothing to do: succeeds without writing an event
)

// cell states what an event does to an entity in a status: the event changes the status to To, or is refused with No.
type cell[S ~string] struct {
	To S
	No refusal
}

// Table is the transition table of a kind of entity: a cell for each of its events and each of its statuses.
type Table[S ~string] map[EventType]map[S]cell[S]

// Runs is the transition table of runs.
var Runs = Table[RunStatus]{
	EventRunCreated: {
		RunNone: {To: RunPending}, RunPending: {No: Conflict}, RunRunning: {No: Conflict},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunStarted: {
		RunNone: {No: missing}, RunPending: {To: RunRunning}, RunRunning: {No: Repeat},
		RunCompleted: {No: Ended}, RunFailed: {No: Ended}, RunCancelled: {No: Ended},
	},
	EventRunCompleted: {
		RunNone: {No: missing}, RunPending: {To: RunCompleted}, RunRunning: {To: RunCompleted},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunFailed: {
		RunNone: {No: missing}, RunPending: {To: RunFailed}, RunRunning: {To: RunFailed},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventRunCancelled: {
		RunNone: {No: missing}, RunPending: {To: RunCancelled}, RunRunning: {To: RunCancelled},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {To: RunCancelled},
	},
	// A run that has not started has nothing to undo: it ends at once instead.
	EventCancelRequested: {
		RunNone: {No: missing}, RunPending: {No: Conflict}, RunRunning: {To: RunRunning},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventAttrSet: {
		RunNone: {No: missing}, RunPending: {To: RunPending}, RunRunning: {To: RunRunning},
		RunCompleted: {No: Conflict}, RunFailed: {No: Conflict}, RunCancelled: {No: Conflict},
	},
	EventStoreSet: {
		RunNone: {No: missing}, RunPending: {To: RunPending}, RunRunning: {To: RunRunning},
		RunCompleted: {No: Ended}, RunFailed: {No: Ended}, RunCancelled: {No: Ended},
	},
}

// steps is the transition table of steps while their run is live. A running step can start again: that is a redelivery
// after a crash.
var steps = Table[StepStatus]{
	EventStepCreated: {
		StepNone: {To: StepPending}, StepPending: {No: Conflict}, StepRunning: {No: Conflict},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepStarted: {
		StepNone: {No: missing}, StepPending: {To: StepRunning}, StepRunning: {To: StepRunning},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepCompleted: {
		StepNone: {No: missing}, StepPending: {To: StepCompleted}, StepRunning: {To: StepCompleted},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepFailed: {
		StepNone: {No: missing}, StepPending: {To: StepFailed}, StepRunning: {To: StepFailed},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepRetrying: {
		StepNone: {No: missing}, StepPending: {To: StepPending}, StepRunning: {To: StepPending},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
}

// stepsAfterEnd is the transition table of steps after the end of their run: an attempt in progress may still report
// its result, but nothing new begins (protocol §3.3).
var stepsAfterEnd = Table[StepStatus]{
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

// stepsAfterEndNext is [stepsAfterEnd] for runs of version [specSlots] and later: a running step does not start again.
var stepsAfterEndNext = func() Table[StepStatus] {
	t := maps.Clone(stepsAfterEnd)
	t[EventStepStarted] = maps.Clone(t[EventStepStarted])
	t[EventStepStarted][StepRunning] = cell[StepStatus]{No: Ended}
	return t
}()

// stepsAfterEndFenced is [stepsAfterEnd] for runs with a fence: a result is recorded whenever it comes, and everything
// that begins an attempt is refused because the run has ended, which ends the delivery that asks for it.
var stepsAfterEndFenced = Table[StepStatus]{
	EventStepCreated: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {No: Ended},
		StepCompleted: {No: Ended}, StepFailed: {No: Ended},
	},
	EventStepStarted: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {No: Ended},
		StepCompleted: {No: Ended}, StepFailed: {No: Ended},
	},
	EventStepCompleted: {
		StepNone: {No: Ended}, StepPending: {To: StepCompleted}, StepRunning: {To: StepCompleted},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepFailed: {
		StepNone: {No: Ended}, StepPending: {To: StepFailed}, StepRunning: {To: StepFailed},
		StepCompleted: {No: Conflict}, StepFailed: {No: Conflict},
	},
	EventStepRetrying: {
		StepNone: {No: Ended}, StepPending: {No: Ended}, StepRunning: {No: Ended},
		StepCompleted: {No: Ended}, StepFailed: {No: Ended},
	},
}

// LateResults is the transition table of steps for results that came after the end of a run which the server drives.
// The cancellation of a step stays its end.
var LateResults = Table[StepStatus]{
	EventStepCompleted: {
		StepNone: {No: missing}, StepPending: {To: StepCompleted}, StepRunning: {To: StepCompleted},
		StepCompleted: {No: Conflict}, StepFailed: {To: StepFailed},
	},
	EventStepFailed: {
		StepNone: {No: missing}, StepPending: {To: StepFailed}, StepRunning: {To: StepFailed},
		StepCompleted: {No: Conflict}, StepFailed: {To: StepFailed},
	},
}

// StepTable returns the transition table for the run's steps. It depends on the run's status and protocol version.
func (r *Run) StepTable() Table[StepStatus] {
	switch {
	case !r.Status.Ended():
		return steps
	case r.Fenced():
		return stepsAfterEndFenced
	case r.SpecVersion >= specSlots:
		return stepsAfterEndNext
	default:
		return stepsAfterEnd
	}
}

// hooks is the transition table of hooks while their run is live. The server writes hook_conflict in place of a
// hook_created whose token another hook holds; no client may write it.
var hooks = Table[HookStatus]{
	EventHookCreated:  {HookNone: {To: HookActive}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookConflict: {HookNone: {To: HookDisposed}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookReceived: {HookNone: {No: missing}, HookActive: {To: HookActive}, HookDisposed: {No: missing}},
	EventHookDisposed: {HookNone: {No: missing}, HookActive: {To: HookDisposed}, HookDisposed: {No: missing}},
}

// hooksAfterEnd is the transition table of hooks after the end of their run, which disposes of all hooks but the
// retained ones. Nothing more is received (I7); a retained hook can still be disposed of.
var hooksAfterEnd = Table[HookStatus]{
	EventHookCreated:  {HookNone: {No: Conflict}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookConflict: {HookNone: {No: Conflict}, HookActive: {No: Conflict}, HookDisposed: {No: Conflict}},
	EventHookReceived: {HookNone: {No: missing}, HookActive: {No: missing}, HookDisposed: {No: missing}},
	EventHookDisposed: {HookNone: {No: missing}, HookActive: {To: HookDisposed}, HookDisposed: {No: missing}},
}

// HookTable returns the transition table for the run's hooks. It depends on the run's status.
func (r *Run) HookTable() Table[HookStatus] {
	if r.Status.Ended() {
		return hooksAfterEnd
	}
	return hooks
}

// waits is the transition table of waits while their run is live. Completing a wait that does not exist is a conflict,
// because that is the only refusal that clients tolerate there (protocol §3.8).
var waits = Table[WaitStatus]{
	EventWaitCreated: {
		WaitNone: {To: WaitWaiting}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
	EventWaitCompleted: {
		WaitNone: {No: Conflict}, WaitWaiting: {To: WaitCompleted}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
	EventWaitCancelled: {
		WaitNone: {No: missing}, WaitWaiting: {To: WaitCancelled}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
}

// waitsAfterEnd is the transition table of waits after the end of their run, which deletes them.
var waitsAfterEnd = Table[WaitStatus]{
	EventWaitCreated: {
		WaitNone: {No: Conflict}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
	EventWaitCompleted: {
		WaitNone: {No: Conflict}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
	EventWaitCancelled: {
		WaitNone: {No: Conflict}, WaitWaiting: {No: Conflict}, WaitCompleted: {No: Conflict},
		WaitCancelled: {No: Conflict},
	},
}

// waitsAfterEndFenced is [waitsAfterEnd] for runs with a fence: that a wait is over is recorded whenever it comes. The
// end of the run has deleted its waits, so that the log may have it several times, which no reader minds.
var waitsAfterEndFenced = func() Table[WaitStatus] {
	t := maps.Clone(waitsAfterEnd)
	t[EventWaitCreated] = map[WaitStatus]cell[WaitStatus]{
		WaitNone: {No: Ended}, WaitWaiting: {No: Ended}, WaitCompleted: {No: Ended}, WaitCancelled: {No: Ended},
	}
	t[EventWaitCompleted] = map[WaitStatus]cell[WaitStatus]{
		WaitNone: {To: WaitCompleted}, WaitWaiting: {To: WaitCompleted}, WaitCompleted: {To: WaitCompleted},
		WaitCancelled: {To: WaitCompleted}, // without its row, all are the same
	}
	return t
}()

// WaitTable returns the transition table for the run's waits. It depends on the run's status and protocol version.
func (r *Run) WaitTable() Table[WaitStatus] {
	switch {
	case !r.Status.Ended():
		return waits
	case r.Fenced():
		return waitsAfterEndFenced
	default:
		return waitsAfterEnd
	}
}

// Next returns the status that follows the event. Kind and ID name the entity in errors. A refusal is a
// *[TransitionError]; an event of another kind of entity is an [ErrInvalid].
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

// has reports whether the event is about this kind of entity.
func (t Table[S]) has(event EventType) bool {
	_, ok := t[event]
	return ok
}
