package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Host writes to the log during an invocation.
type Host interface {
	// Commit writes the commands, and returns the events that the log has after the given position, without those of the
	// commands' own results.
	Commit(ctx context.Context, a Answer, after int64) ([]Event, error)
}

// Answer is what an invocation writes.
type Answer struct {
	Commands []any
	// Open lists the inline operations that were asked for and have no recorded result. A later invocation that finds
	// things in the log that came after them executes them again.
	Open []string
}

// Engine runs one invocation of a workflow.
type Engine struct {
	*scheduler

	history *history
	order   order
	ops     map[key]*Operation
	asked   []*Operation // since the last rest
	main    *Coroutine
	last    int64 // position of the last event that is known
	now     time.Time

	host    Host   // nil: everything is written with the answer
	inline  Inline // nil: inline operations run at the same time
	fresh   []*Operation
	pending []any // commands that are not written yet
	running []*Operation
	ended   chan finished
}

// finished is the end of an inline operation.
type finished struct {
	op *Operation
	Result
}

// New returns an engine for a run with the given log. If the host is not nil, the result of an inline operation is on
// disk before the next one begins.
func New(log []Event, host Host) *Engine {
	e := &Engine{
		scheduler: newScheduler(), history: newHistory(), ops: map[key]*Operation{}, host: host, ended: make(chan finished),
	}
	for _, event := range log {
		e.add(event)
	}
	if len(log) > 0 {
		e.now = log[0].At
	}
	return e
}

func (e *Engine) add(event Event) {
	e.last = max(e.last, event.Seq)
	e.history.add(event)
	if _, ok := results[event.Type]; ok {
		e.order.add(event)
	}
}

// Now returns the time of the last delivery. It never goes back.
func (e *Engine) Now() time.Time { return e.now }

// Live reports whether everything in the log has been delivered, so that the code runs for the first time.
func (e *Engine) Live() bool { return e.order.empty() && len(e.history.unclaimed) == 0 }

// Known reports whether the log has an operation that was not asked for yet.
func (e *Engine) Known(kind Kind, id string) bool {
	return e.history.created[key{kind.space(), id}] != nil
}

// AtEnd reports whether nothing in the log comes after what the code has done.
func (e *Engine) AtEnd() bool {
	return e.order.empty() && !slices.ContainsFunc(e.history.unclaimed, func(u *Event) bool {
		return e.ops[key{creates[u.Type], u.ID}] == nil
	})
}

// Ask asks for an operation. What comes of it is delivered at later rests. A second operation with the same ID is an
// error of the workflow.
func (e *Engine) Ask(c *Coroutine, op *Operation) {
	c.Check()
	if other := e.ops[op.key()]; other != nil {
		panic(fmt.Sprintf("%s: the %s %q has the ID of the %s at %s; give it another name or ID",
			op.Place, op.Kind, op.ID, other.Kind, other.Place))
	}
	e.ops[op.key()] = op
	e.asked = append(e.asked, op)
}

// Run runs the workflow's main function as far as the log and its inline operations go. It returns the answer that is
// still to be written, and whether main has returned. The error is a [*Divergence], a [*Panic], one of the host's, or
// the context's cause; then nothing more may be written.
func (e *Engine) Run(ctx context.Context, place string, main func(*Coroutine)) (a Answer, done bool, err error) {
	e.inline, _ = ctx.Value(inlineKey{}).(Inline)
	ctx, cancel := context.WithCancel(ctx)
	defer e.wait(ctx)
	defer cancel()
	defer e.end()
	e.main = e.start(NewScope(), place, main)
	for {
		e.rest()
		if e.panic != nil {
			return Answer{}, false, e.panic
		}
		if err := e.match(); err != nil {
			return Answer{}, false, err
		}
		if e.main.ended {
			return e.answer(), true, e.complete()
		}
		if event, ok := e.order.next(); ok {
			if err := e.deliver(event); err != nil {
				return Answer{}, false, err
			}
			continue
		}
		switch more, err := e.proceed(ctx); {
		case err != nil:
			return Answer{}, false, err
		case !more:
			return e.answer(), false, nil
		}
	}
}

// match matches what was asked for since the last rest. New commands wait to be written, and new inline operations to
// begin.
func (e *Engine) match() error {
	fresh, err := e.history.match(e.asked, e.order.empty())
	if err != nil {
		return err
	}
	e.asked = nil
	for _, op := range fresh {
		if op.Kind == KindInline {
			e.fresh = append(e.fresh, op)
		} else {
			e.pending = append(e.pending, op.Command)
		}
	}
	return nil
}

// complete checks that nothing in the log is left over when the workflow has returned.
func (e *Engine) complete() error {
	if len(e.history.unclaimed) > 0 {
		return &Divergence{Agreed: e.history.agreed, Log: e.history.unclaimed[0]}
	}
	return nil
}

// deliver delivers an event.
func (e *Engine) deliver(event Event) error {
	op := e.ops[key{results[event.Type], event.ID}]
	if op == nil {
		return &Divergence{Agreed: e.history.agreed, Log: &event}
	}
	op.Received = append(op.Received, event)
	at := event.At
	if r := event.Data.Recorded; r != nil {
		at = r.EndedAt
	}
	if at.After(e.now) {
		e.now = at
	}
	return nil
}

// proceed begins inline operations and delivers the next result of one. It reports false if the workflow has to wait for
// something else.
func (e *Engine) proceed(ctx context.Context) (more bool, err error) {
	if len(e.history.unclaimed) > 0 && len(e.fresh) == 0 && len(e.running) == 0 {
		return false, &Divergence{Agreed: e.history.agreed, Log: e.history.unclaimed[0]}
	}
	if len(e.fresh) > 0 {
		if err := e.write(ctx); err != nil || !e.order.empty() {
			return true, err
		}
		for _, op := range e.fresh {
			e.begin(ctx, op)
		}
		e.fresh = nil
	}
	if len(e.running) == 0 {
		return false, nil
	}
	if e.inline != nil {
		return e.executeNext(ctx)
	}
	select {
	case f := <-e.ended:
		return true, e.record(f)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// write writes the pending commands before the next effects begin, and adds what the log has got meanwhile.
func (e *Engine) write(ctx context.Context) error {
	if e.host == nil || len(e.pending) == 0 {
		return nil
	}
	events, err := e.host.Commit(ctx, e.answer(), e.last)
	if err != nil {
		return err
	}
	e.pending = nil
	for _, event := range events {
		e.last = max(e.last, event.Seq)
		if _, ok := results[event.Type]; ok && event.Data.Recorded == nil {
			e.order.add(event)
		}
	}
	return nil
}

func (e *Engine) answer() Answer {
	a := Answer{Commands: e.pending}
	for _, op := range slices.Concat(e.running, e.fresh) {
		a.Open = append(a.Open, op.ID)
	}
	return a
}

// begin executes an inline operation.
func (e *Engine) begin(ctx context.Context, op *Operation) {
	e.running = append(e.running, op)
	if e.inline != nil {
		return
	}
	go func() { e.ended <- finished{op, op.Execute(ctx)} }()
}

// record delivers the result of an inline operation, and makes the command that records it.
func (e *Engine) record(f finished) error {
	e.running = slices.DeleteFunc(e.running, func(op *Operation) bool { return op == f.op })
	r := Recorded{Seen: e.order.seen, EndedAt: f.EndedAt}
	e.pending = append(e.pending, f.op.Record(f.Result, r))
	event := Event{Type: "step_completed", ID: f.op.ID, Payload: f.Output, Data: Data{Recorded: &r}}
	if f.Error != nil {
		event.Type, event.Payload = "step_failed", f.Error
	}
	return e.deliver(event)
}

// wait waits for the inline operations in progress, whose context has ended.
func (e *Engine) wait(ctx context.Context) {
	for _, op := range e.running {
		if e.inline != nil {
			_, _ = e.inline.Execute(ctx, op) // nobody gets the result
		} else {
			<-e.ended
		}
	}
	e.running = nil
}

// ErrSuspended is the cause of the end of a coroutine that waits for a later invocation.
var ErrSuspended = errors.New("the workflow waits for a later invocation")
