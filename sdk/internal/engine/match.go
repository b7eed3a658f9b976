package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Operation is something that a workflow asks for: a step, a wait, a hook and so on.
type Operation struct {
	Kind     Kind
	ID, Name string
	// Place is the line of code that asked for it, as file:line.
	Place string
	// Token is the token of a hook.
	Token string
	// Input is its input as JSON; nil if it has none.
	Input json.RawMessage
	// Command creates the operation at the server; nil for those that are only executed inline.
	Command any
	// Execute executes the operation inline; nil if only the server can. Record returns the command that records its
	// result, and Retry the command that records an attempt after which it is tried again: inline operations by a later
	// invocation, others by the server.
	Execute func(context.Context) Result
	Record  func(Result, Recorded) any
	Retry   func(Attempt) any
	// Ready says whether it can begin, given its failed attempts; nil: always.
	Ready func(failed []Event) Readiness
	// Durable is set if the result of an inline operation must be on disk before the next one begins, and soon, whatever
	// else is in progress. Otherwise it is written with the next thing that has to be written anyway.
	Durable bool
	// Stop ends the execution of an inline operation; nil for others.
	Stop func(cause error)
	// Undone is set if it is undone should it succeed after it was cancelled. So the server is not asked to cancel it:
	// nobody would know then what a call under way has done.
	Undone bool
	// Grace is how long a child that is cancelled may take to end by itself.
	Grace time.Duration
	// Cancelled is set when the workflow has cancelled it.
	Cancelled bool

	// Received has the events that were delivered for it, in their order, and Taken says how many of them the code has
	// taken. Conditions of coroutines that depend on steps and waits use Done instead.
	Received []*Event
	Taken    int

	s       *scheduler
	waiting []*Coroutine // asleep until it changes
	created *Event       // the event that created it; nil if it is new
	remote  bool         // the server executes it after an attempt here
	marked  bool
	resting bool // it is not tried again in this invocation
}

// Result is what came of an inline operation: an output, or an error as the function contract describes it. If it has
// neither, the operation is tried again.
type Result struct {
	Output json.RawMessage
	Error  json.RawMessage // nil if it succeeded
	// Failed has the attempts that were not the last.
	Failed             []Attempt
	StartedAt, EndedAt time.Time
	// Stored is what it wrote to the run's store, by key.
	Stored map[string]json.RawMessage
	// Err ends the invocation; nothing is recorded.
	Err error
}

// Attempt is a failed attempt that was not the last.
type Attempt struct {
	Error              json.RawMessage
	StartedAt, EndedAt time.Time
	// Pause is how long after its end the next attempt may begin.
	Pause time.Duration
}

// inMilliseconds returns the time as the log keeps it.
func inMilliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func (o *Operation) key() key { return key{o.Kind.space(), o.ID} }

// Done reports whether something was delivered for the operation. Conditions of coroutines that depend on steps and
// waits must use it, so that it is known what the workflow waits for.
func (o *Operation) Done() bool {
	if o.s != nil && o.s.tracked != nil {
		o.s.tracked(o)
	}
	return o.isDone()
}

// IsRemote reports whether the server executes the operation, so that the server has to be asked to cancel it.
func (o *Operation) IsRemote() bool { return o.Execute == nil || o.remote || o.created != nil }

func (o *Operation) isDone() bool { return len(o.Received) > 0 }

// history is what the log has created, and how much of it the code has asked for.
type history struct {
	created map[key]*Event
	settled map[key]int64 // position of the event
	// unclaimed has the events whose operation the code has not asked for yet, in the order of the log.
	unclaimed []*Event
	open      map[string]bool    // inline operations that were in progress at some write
	unasked   map[string]bool    // those of open that the code may not have asked for yet
	failed    map[string][]Event // failed attempts of steps that are tried again
	agreed    *Event

	from     string            // the run with whose work this one goes on
	writes   []key             // of the workflow's code to the store and to attributes, in the order of the log
	stored   map[string]*Event // writes to the store, by their step
	children map[string]string // IDs of runs, by their step
}

func newHistory() *history {
	return &history{
		created: map[key]*Event{}, settled: map[key]int64{}, open: map[string]bool{}, unasked: map[string]bool{},
		failed: map[string][]Event{}, stored: map[string]*Event{}, children: map[string]string{},
	}
}

// add adds an event of the log.
func (h *history) add(e *Event) {
	for _, id := range e.Data.Open {
		h.open[id], h.unasked[id] = true, true
	}
	h.note(e)
	if e.Type == "step_retrying" {
		h.failed[e.ID] = append(h.failed[e.ID], *e)
	}
	space, ok := creates[e.Type]
	if k := (key{space, e.ID}); ok && h.created[k] == nil {
		h.created[k] = e
		if !strings.HasPrefix(e.ID, inbox) {
			h.unclaimed = append(h.unclaimed, e)
		}
	}
}

// match compares what the code asked for at one rest with the log, and returns what is new. Later reports whether the
// log has results of inline operations that were recorded later. Match returns a *Divergence if code and log disagree.
// Compare compares the inputs.
func (h *history) match(
	asked []*Operation, later bool, compare func(*Operation, *Event) error,
) (fresh []*Operation, err error) {
	known := 0
	for _, op := range asked {
		e := h.created[op.key()]
		if e == nil {
			fresh = append(fresh, op)
			continue
		}
		if !fits(op, e) {
			return nil, &Divergence{Agreed: h.agreed, Log: e, Code: op}
		}
		if err := compare(op, e); err != nil {
			return nil, err
		}
		op.created, h.agreed = e, e
		h.claim(e)
		known++
	}
	// What was asked for at one rest is written at once, in parts if it is too much. So idempotent commands were written
	// if anything is in the log that was asked for later, or if all is that was asked for at this rest.
	written := known > 0 && !slices.ContainsFunc(fresh, isWrittenAtOnce) || later || len(h.unclaimed) > 0
	fresh = slices.DeleteFunc(fresh, func(op *Operation) bool {
		return op.Kind.idempotent() && (written || h.settled[op.key()] > 0)
	})
	for _, op := range fresh {
		if len(h.unclaimed) > 0 && (op.Kind.space() != "step" || !h.open[op.ID]) {
			return nil, &Divergence{Agreed: h.agreed, Log: h.unclaimed[0], Code: op}
		}
	}
	return fresh, nil
}

// isWrittenAtOnce reports whether an operation is written at the rest at which it is asked for, and always leaves an
// event.
func isWrittenAtOnce(op *Operation) bool { return op.Execute == nil && !op.Kind.idempotent() }

// claim removes an event from those that nobody has asked for. It is usually the first of them.
func (h *history) claim(e *Event) {
	if i := slices.Index(h.unclaimed, e); i == 0 {
		h.unclaimed = h.unclaimed[1:]
	} else if i > 0 {
		h.unclaimed = slices.Delete(h.unclaimed, i, i+1)
	}
}

// fits reports whether an operation is the one that the event created.
func fits(op *Operation, e *Event) bool {
	return op.Kind.space() != "step" || e.Data.StepName == "" || e.Data.StepName == op.Name
}
