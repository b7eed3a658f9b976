package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Host writes to the log during an invocation, and reads it.
type Host interface {
	// Read returns the events that the log has after the given position.
	Read(ctx context.Context, after int64) ([]Event, error)
	// Commit writes the commands, and returns the events that the log has after the given position.
	Commit(ctx context.Context, a Answer, after int64) ([]Event, error)
}

// Config is how an engine executes a workflow.
type Config struct {
	// Host writes during invocations. If it is nil, an invocation ends where something must be on disk, and the next one
	// goes on.
	Host Host
	// Listen is how often the log is read while inline operations are in progress; 0: never. So what happens meanwhile,
	// such as a request to cancel, is delivered at once, and not at their end.
	Listen time.Duration
	// Strict makes it a divergence if the code asks for an operation with another input than the log has.
	Strict bool
	// Differs is called for such operations unless Strict is set; it may be nil.
	Differs func(op *Operation, logged Event)
	// Size returns how many bytes the payloads of a command have; nil if that does not matter.
	Size func(command any) int
}

// ErrEnded is the cause with which the contexts of inline operations end that are in progress when the workflow
// returns.
var ErrEnded = errors.New("the run has ended")

// Answer is what an invocation writes.
type Answer struct {
	Commands []any
	// Open lists the inline operations that were asked for and have no recorded result. A later invocation that finds
	// things in the log that came after them executes them again.
	Open []string
	// Results is set if commands record what inline operations have done.
	Results bool
	// Await is what the workflow waits for; nil if it is to be invoked for everything.
	Await *Await
}

// Engine runs a workflow against the log of its run, one invocation after the other.
type Engine struct {
	*scheduler
	Config

	history  *history
	order    order
	ops      map[key]*Operation
	asked    []*Operation // since the last rest
	latest   *Operation   // that was asked for last by code
	main     *Coroutine
	last     int64 // position of the last event that is known
	executed int64 // position of the log up to which earlier invocations have executed the code
	now      time.Time
	bytes    int
	length   int // how many operations were asked for, and events delivered

	// Observe is called with each event that is delivered; nil if nobody is interested.
	Observe func(*Event)

	inline   Inline       // nil: inline operations run at the same time
	idle     []*Operation // inline operations that were asked for and are neither running nor ended
	running  []*Operation
	results  chan finished
	pending  pending
	readLog  <-chan time.Time // when the log is to be read; nil: never
	sent     pending          // what the last answer had
	recorded []*Event         // results that the log does not show yet
	speaking bool             // the code does something for the first time
	stopping bool             // nothing begins any more: the next invocation goes on
}

// finished is the end of an inline operation.
type finished struct {
	op *Operation
	Result
}

// New returns an engine for a run with the given log.
func New(log []Event, c Config) *Engine {
	e := &Engine{
		scheduler: newScheduler(), Config: c, history: newHistory(), ops: map[key]*Operation{},
		results: make(chan finished), speaking: true,
	}
	for i := range log {
		e.add(&log[i])
	}
	if len(log) > 0 {
		e.now = log[0].At
	}
	return e
}

func (e *Engine) add(event *Event) {
	e.last = max(e.last, event.Seq)
	e.bytes += len(event.Payload) + eventBytes
	e.history.add(event)
	if _, ok := results[event.Type]; ok {
		e.order.add(event)
	}
}

// eventBytes is about how much memory an event takes besides its payload.
const eventBytes = 300

// Bytes returns about how much memory the engine takes.
func (e *Engine) Bytes() int { return e.bytes }

// Length returns how many operations the code has asked for, and events were delivered to it. It is about how long the
// log was when that had happened, and the same in each replay.
func (e *Engine) Length() int { return e.length }

// Last returns the position of the last event that the engine knows.
func (e *Engine) Last() int64 { return e.last }

// SetExecuted says up to which position of the log earlier invocations have executed the code. It must be called before
// the first invocation.
func (e *Engine) SetExecuted(position int64) {
	e.executed = position
	e.speaking = position == 0
}

// Now returns the time of the last delivery. It never goes back.
func (e *Engine) Now() time.Time { return e.now }

// Live reports whether the code does something for the first time. It does not while it repeats what an earlier
// invocation has done.
func (e *Engine) Live() bool { return e.speaking }

// Known reports whether the log has an operation that was not asked for yet.
func (e *Engine) Known(kind Kind, id string) bool {
	return e.history.created[key{kind.space(), id}] != nil
}

// AtEnd reports whether nothing that the code has caused comes in the log after what it has done. Events of others that
// it has not seen yet say nothing about that, if it does something for the first time. A run whose end the code has
// seen has more. So has a run whose log names an inline operation that was in progress and that the code has not asked
// for: its result was lost.
func (e *Engine) AtEnd() bool {
	for len(e.history.writes) > 0 && e.hasWritten(e.history.writes[0]) {
		e.history.writes = e.history.writes[1:]
	}
	maps.DeleteFunc(e.history.unasked, func(id string, _ bool) bool { return e.ops[key{KindStep.space(), id}] != nil })
	first := e.speaking || len(e.order.world) == 0 && e.executed <= e.last
	isUnasked := func(u *Event) bool { return e.ops[key{creates[u.Type], u.ID}] == nil }
	return first && len(e.order.recorded)+len(e.history.writes)+len(e.history.unasked) == 0 &&
		!slices.ContainsFunc(e.history.unclaimed, isUnasked)
}

// hasWritten reports whether a write is one that the code has asked for, or that of a step.
func (e *Engine) hasWritten(write key) bool {
	return e.ops[write] != nil || e.ops[key{KindStep.space(), write.id}] != nil
}

// Ask asks for an operation. What comes of it is delivered at later rests. A second operation with the same ID is an
// error of the workflow.
func (e *Engine) Ask(c *Coroutine, op *Operation) {
	c.Check()
	e.Request(op)
	e.latest = op
}

// Request is [Engine.Ask] for commands that no coroutine asks for, since they follow from an event.
func (e *Engine) Request(op *Operation) {
	if e.evaluating != nil {
		e.refuse(e.evaluating.misuse(usedInCondition))
	}
	if other := e.ops[op.key()]; other != nil {
		panic(fmt.Sprintf("%s: the %s %q has the ID of the %s at %s; give it another name or ID",
			op.Place, op.Kind, op.ID, other.Kind, other.Place))
	}
	op.s = e.scheduler
	e.ops[op.key()] = op
	e.length++
	e.asked = append(e.asked, op)
}

// Begin makes the workflow's main function the one that the first invocation begins.
func (e *Engine) Begin(place string, main func(*Coroutine)) {
	e.main = e.start(NewScope(), place, main)
}

// Close ends all coroutines. Their deferred functions run. If one of them does not rest, all end as soon as it does.
func (e *Engine) Close() {
	if !e.left {
		e.end()
	}
}

// Advance runs one invocation: as far as the log and the inline operations go. It returns the answer that is still to
// be written, and whether the main function has returned. The error is a [*Divergence], a [*Panic], a [*MisuseError], a
// [*Stuck], one of the host's, or the context's cause; then the engine must be closed. The answer then has only results
// of inline operations that would otherwise happen again, with what was asked for before.
func (e *Engine) Advance(ctx context.Context) (a Answer, done bool, err error) {
	e.inline, _ = ctx.Value(inlineKey{}).(Inline)
	e.stopping = false
	e.driver.Store(goroutine())
	defer e.driver.Store(0)
	e.listen()
	for _, op := range e.idle {
		op.resting, op.marked = false, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer e.wait(ctx)
	defer func() { cancel(cmp.Or(err, ErrEnded)) }()
	for {
		err := e.rest(ctx)
		if err == nil {
			err = e.failure()
		}
		if err != nil {
			return e.unwritten(), false, err
		}
		if err := e.match(); err != nil {
			return Answer{}, false, err
		}
		if e.main.ended {
			if err := e.claimed(); err != nil {
				return Answer{}, false, err
			}
			_, err := e.fit(ctx)
			return e.answer(), true, err
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
	fresh, err := e.history.match(e.asked, len(e.order.recorded) > 0, e.compare)
	if err != nil {
		return err
	}
	for _, op := range e.asked {
		if op.created != nil && op.Kind == KindInline { // if it has no result, it is tried again
			e.idle = append(e.idle, op)
		}
	}
	e.asked = nil
	for _, op := range fresh {
		if op.Execute != nil {
			e.idle = append(e.idle, op)
		} else {
			e.creation(op)
		}
	}
	return nil
}

// compare compares the input of an operation with the log's.
func (e *Engine) compare(op *Operation, logged *Event) error {
	switch {
	case op.Input == nil || logged.Payload == nil || EqualJSON(op.Input, logged.Payload):
	case e.Strict:
		return &Divergence{Agreed: e.history.agreed, Log: logged, Code: op}
	case e.Differs != nil:
		e.Differs(op, *logged)
	}
	return nil
}

// claimed checks that the code has asked for everything that the log has created.
func (e *Engine) claimed() error {
	if len(e.history.unclaimed) > 0 {
		return e.leftOver(e.history.unclaimed[0])
	}
	return nil
}

// leftOver returns the divergence that nobody has asked for what the log has.
func (e *Engine) leftOver(event *Event) error {
	return &Divergence{Agreed: e.history.agreed, Log: event, Last: e.latest, Returned: e.main.ended}
}

// deliver delivers an event.
func (e *Engine) deliver(event *Event) error {
	op := e.receiver(event)
	if op == nil {
		undue := *event
		if created := e.history.created[key{results[event.Type], event.ID}]; created != nil {
			undue.Data.Place = created.Data.Place
		}
		return e.leftOver(&undue)
	}
	if op.Execute != nil {
		e.idle = without(e.idle, op)
	}
	op.Wake()
	op.Received = append(op.Received, event)
	e.length++
	if err := e.observe(event); err != nil {
		return err
	}
	at, isNew := event.At, event.Seq > e.executed
	if event.Data.IsRecorded() { // it is new only when it comes live
		at, isNew = event.Data.EndedAt, event.Seq == 0
	}
	if at.After(e.now) {
		e.now = at
	}
	e.speaking = e.speaking || isNew
	return nil
}

// answer returns what the invocation has not written yet, and what the workflow waits for.
func (e *Engine) answer() Answer {
	a := e.write()
	if !e.stopping {
		a.Await = e.await()
	}
	return a
}

// unwritten returns what is not written yet, if it has results of inline operations.
func (e *Engine) unwritten() Answer {
	if !e.pending.results {
		return Answer{}
	}
	return e.write()
}

// write returns what is not written yet.
func (e *Engine) write() Answer {
	a := Answer{Commands: e.pending.commands, Results: e.pending.results}
	for _, op := range slices.Concat(e.running, e.idle) {
		if op.created == nil {
			a.Open = append(a.Open, op.ID)
		}
	}
	e.sent, e.pending = e.pending, pending{}
	return a
}

// lastWord is how long operations whose context has ended are waited for.
const lastWord = time.Second

// wait waits for the inline operations in progress, whose context has ended. Nobody needs their results any more, so
// code that ignores its context is left behind.
func (e *Engine) wait(ctx context.Context) {
	late := time.After(lastWord)
	for ; len(e.running) > 0; e.running = e.running[1:] {
		if e.inline != nil {
			_, _ = e.inline.Execute(ctx, e.running[0]) // nobody gets the result
			continue
		}
		select {
		case <-e.results:
		case <-late:
			go func(left int) {
				for range left {
					<-e.results
				}
			}(len(e.running))
			e.running = nil
			return
		}
	}
}
