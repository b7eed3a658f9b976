package engine

import (
	"context"
	"encoding/json"
	"fmt"
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
	// Command creates the operation; nil for inline operations.
	Command any
	// Execute executes an inline operation, and Record returns the command that records its result.
	Execute func(context.Context) Result
	Record  func(Result, Recorded) any

	// Store returns the command that writes to the run's store with its result.
	Store func(values map[string]json.RawMessage) any
	// Stop ends the execution of an inline operation; nil for others.
	Stop func(cause error)
	// Cancelled is set when the workflow has cancelled it.
	Cancelled bool

	// Received has the events that were delivered for it, in their order, and Taken says how many of them the code has
	// taken.
	Received []Event
	Taken    int
	created  *Event // the event that created it; nil if it is new
}

// Result is the result of an inline operation: an output, or an error as the function contract describes it.
type Result struct {
	Output json.RawMessage
	Error  json.RawMessage // nil if it succeeded
	// StartedAt and EndedAt are the times of the execution.
	StartedAt, EndedAt time.Time
	// Stored is what it wrote to the run's store, by key.
	Stored map[string]json.RawMessage
}

// Done reports whether something was delivered for the operation.
func (o *Operation) Done() bool { return len(o.Received) > 0 }

func (o *Operation) key() key { return key{o.Kind.space(), o.ID} }

// Divergence says that the code of a workflow does not fit the log of the run: the code has changed since the log was
// written. Nothing that the code asked for afterwards was written or begun.
type Divergence struct {
	// Agreed is the last event in the log that the code asked for; nil if there is none.
	Agreed *Event
	// Log is what the log has and the code did not ask for; nil if Code is of an existing operation.
	Log *Event
	// Code is what the code asks for; nil if it asks for nothing more.
	Code *Operation
}

// Error returns a text that names both lines of code.
func (d *Divergence) Error() string {
	var b strings.Builder
	b.WriteString("the workflow no longer fits the log of the run; nothing was written\n")
	line := func(what string, e *Event) {
		fmt.Fprintf(&b, "\n  %-14s #%d  %s  %s  %s", what, e.Seq, e.Type, e.ID, e.Data.Place)
	}
	if d.Agreed != nil {
		line("agreed up to", d.Agreed)
	}
	if d.Log != nil {
		line("the log has", d.Log)
	}
	if d.Code != nil {
		fmt.Fprintf(&b, "\n  %-14s %s  %s  %s", "the code asks", d.Code.Kind, d.Code.ID, d.Code.Place)
	} else {
		fmt.Fprintf(&b, "\n  %-14s nothing more", "the code asks")
	}
	return b.String()
}

// history is what the log has created, and how much of it the code has asked for.
type history struct {
	created map[key]*Event
	settled map[key]int64 // position of the event
	// unclaimed has the events whose operation the code has not asked for yet, in the order of the log.
	unclaimed []*Event
	open      map[string]bool // inline operations that were in progress at some write
	agreed    *Event

	stored   map[string]*Event // writes to the store, by their step
	children map[string]string // IDs of runs, by their step
}

func newHistory() *history {
	return &history{
		created: map[key]*Event{}, settled: map[key]int64{}, stored: map[string]*Event{},
		children: map[string]string{}, open: map[string]bool{},
	}
}

// add adds an event of the log.
func (h *history) add(e Event) {
	for _, id := range e.Data.Open {
		h.open[id] = true
	}
	h.note(e)
	space, ok := creates[e.Type]
	if k := (key{space, e.ID}); ok && h.created[k] == nil {
		h.created[k] = &e
		if !strings.HasPrefix(e.ID, inbox) {
			h.unclaimed = append(h.unclaimed, &e)
		}
	}
}

// match compares what the code asked for at one rest with the log, and returns what is new. Later reports whether the log
// has results of inline operations that were recorded later. Match returns a *Divergence if code and log disagree.
func (h *history) match(asked []*Operation, later bool) (fresh []*Operation, err error) {
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
		op.created, h.agreed = e, e
		h.unclaimed = slices.DeleteFunc(h.unclaimed, func(u *Event) bool { return u == e })
		known++
	}
	// What was asked for at one rest is written at once. So idempotent commands were written if anything is in the log
	// that was asked for at this rest or later.
	written := known > 0 || later || len(h.unclaimed) > 0
	fresh = slices.DeleteFunc(fresh, func(op *Operation) bool {
		return op.Kind.idempotent() && (written || h.settled[op.key()] > 0)
	})
	for _, op := range fresh {
		if len(h.unclaimed) > 0 && !(op.Kind == KindInline && h.open[op.ID]) {
			return nil, &Divergence{Agreed: h.agreed, Log: h.unclaimed[0], Code: op}
		}
	}
	return fresh, nil
}

// fits reports whether an operation is the one that the event created.
func fits(op *Operation, e *Event) bool {
	return op.Kind.space() != "step" || e.Data.StepName == "" || e.Data.StepName == op.Name
}
