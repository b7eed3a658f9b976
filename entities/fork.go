package entities

import (
	"errors"
	"fmt"
	"time"
)

// Fork says of which run's log a run keeps the beginning. The kept events have the times that they had there, since the
// code of the run has read them.
type Fork struct {
	// RunID is the run whose log it is, and Events is how many events of it are kept, the run_created among them.
	RunID  RunID `json:"runId"`
	Events int64 `json:"events"`
	// At is the time of the fork: the run is as old as that.
	At time.Time `json:"at"`
	// Seed is the run that has begun the log, of which RunID may be a fork in turn. What code makes of the ID of its run,
	// such as random numbers, it makes of this one, so that it is the same again.
	Seed RunID `json:"seed"`
	// Steps is how many steps were open at the place, which the fork executes again, and Children how many child runs,
	// which it starts again.
	Steps    int `json:"steps,omitempty"`
	Children int `json:"children,omitempty"`
}

// ErrForkRefused means that a run cannot go on from a place in a log; a [ForkRefusedError] says why. ErrForkTooLarge
// means that there is too much before that place.
var (
	ErrForkRefused  = errors.New("fork refused")
	ErrForkTooLarge = errors.New("fork too large")
)

// The reasons why a run cannot go on from a place in a log.
const (
	// ForkOpenChild: a child run was open there, and cannot be started again: it was deleted since.
	ForkOpenChild = "open_child"
	// ForkChildKey: another run has the key of a child run that was open there.
	ForkChildKey = "child_key"
	// ForkCancelling: the run was asked to cancel before.
	ForkCancelling = "cancel_requested"
	// ForkWithin: the place is within what was written at once, between the creation of a step and its result.
	ForkWithin = "within_result"
	// ForkToken: another run has the token of a hook that was open there.
	ForkToken = "token_taken"
	// ForkUndone: the run has undone steps after the failure.
	ForkUndone = "undone"
	// ForkLimits: the run has to wait for slots, and what is open cannot wait with it: a child run, or a step that waits
	// for slots of other limits.
	ForkLimits = "limits"
	// ForkSDK: the run is one of the Workflow SDK, whose IDs of steps follow from the ID of the run.
	ForkSDK = "workflow_sdk"
)

// ForkRefusedError is an [ErrForkRefused] with its reason.
type ForkRefusedError struct {
	Reason string
	// Seq is the event that is in the way: a run can go on from what is before it. It is 0 if no place would do.
	Seq int64
	// Holder is the run that is in the way, if one is.
	Holder RunID
	Text   string
}

func (e *ForkRefusedError) Error() string { return e.Text }

// Is makes errors.Is(err, ErrForkRefused) true.
func (e *ForkRefusedError) Is(target error) bool { return target == ErrForkRefused }

// Details returns the machine-readable part of the error.
func (e *ForkRefusedError) Details() map[string]any {
	details := map[string]any{"reason": e.Reason}
	if e.Seq > 0 {
		details["seq"] = e.Seq
	}
	if e.Holder != "" {
		details["runId"] = e.Holder
	}
	return details
}

// ForkTooLargeError is an [ErrForkTooLarge] with the limit that is exceeded.
type ForkTooLargeError struct {
	What  string
	Limit int64
}

func (e *ForkTooLargeError) Error() string {
	return fmt.Sprintf("the log has more than %d %s before that place, which is the limit of a fork: rerun the run, "+
		"or go on from an earlier place", e.Limit, e.What)
}

// OfLog returns what is wrong with the log alone.
func (e *ForkTooLargeError) OfLog() string {
	return fmt.Sprintf("its log has more than %d %s", e.Limit, e.What)
}

// Is makes errors.Is(err, ErrForkTooLarge) true.
func (e *ForkTooLargeError) Is(target error) bool { return target == ErrForkTooLarge }
