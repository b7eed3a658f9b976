package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Readiness says what is to happen with an inline operation that could begin.
type Readiness struct {
	// Later is set if its time has not come. The run is invoked then.
	Later bool
	// NextInvocation is set if there may not be enough time left of this one. The operation begins in the next one, if the
	// answer causes one.
	NextInvocation bool
	// Mark is a command that must be on disk before the operation begins; nil for none. Failed is what it records.
	Mark   any
	Failed Attempt
	// Result is its result if it is not to begin at all.
	Result *Result
}

// cancelledEarly is the error of an operation that was cancelled before it began.
var cancelledEarly = []byte(`{"message":"it was cancelled before it began","code":"not_begun"}`)

// pending is what is not written yet.
type pending struct {
	commands []any
	bytes    int  // of the commands' payloads
	results  bool // some of them record results of inline operations
	durable  bool // some must be on disk before the next operation begins, and soon
	starts   bool // some start something at the server
	// due comes when results have waited long enough for others; nil if there is none that must be on disk soon.
	due <-chan time.Time
	// created has the operations whose creation is visible in the log when it is written.
	created []*Operation
}

// command adds a command to what is to be written.
func (e *Engine) command(command any) {
	e.pending.commands = append(e.pending.commands, command)
	e.pending.bytes += e.size(command)
}

// size returns how many bytes the payloads of a command have.
func (e *Engine) size(command any) int {
	if e.Size == nil {
		return 0
	}
	return e.Size(command)
}

// creation adds the command that creates an operation.
func (e *Engine) creation(op *Operation) {
	e.command(op.Command)
	p := &e.pending
	p.starts = p.starts || !op.Kind.idempotent() && op.Kind != KindMark
	if !op.Kind.idempotent() {
		p.created = append(p.created, op)
	}
}

// proceed begins inline operations and delivers the next result of one. It reports false if the workflow has to wait
// for something else.
func (e *Engine) proceed(ctx context.Context) (more bool, err error) {
	if err := e.claimed(); err != nil {
		return false, err
	}
	if f, ok := e.another(); ok {
		return true, e.record(f)
	}
	ready, ended := e.ready()
	if ended != nil {
		return true, e.record(*ended)
	}
	if err := e.flush(ctx, len(ready) > 0); err != nil || !e.order.empty() {
		return true, err
	}
	if !e.stopping {
		for _, op := range ready {
			e.begin(ctx, op)
		}
	}
	if len(e.running) == 0 {
		return e.fit(ctx)
	}
	if e.inline != nil {
		return e.executeNext(ctx)
	}
	select {
	case f := <-e.results:
		return true, e.record(f)
	case <-e.readLog:
		return true, e.hear(ctx)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// linger is how long a result of an inline operation waits for those of others in progress, to be written with them.
const linger = 10 * time.Millisecond

// another returns an inline operation that has ended, or ends soon enough that its result is written with those that
// wait already. So what has ended during a write is one write.
func (e *Engine) another() (f finished, ok bool) {
	if e.inline != nil || len(e.running) == 0 || e.pending.bytes > manyBytes {
		return f, false
	}
	select {
	case f = <-e.results:
		return f, true
	default:
	}
	if e.pending.due == nil {
		return f, false
	}
	select {
	case f = <-e.results:
		return f, true
	case <-e.pending.due:
		e.pending.due = nil
		return f, false
	}
}

// ready returns the inline operations that begin now, or one that has ended without beginning.
func (e *Engine) ready() (ready []*Operation, ended *finished) {
	for _, op := range e.idle {
		if e.stopping {
			return nil, nil
		}
		if op.resting { // it has failed in this invocation
			continue
		}
		if op.Cancelled {
			return nil, &finished{op, Result{Error: cancelledEarly, EndedAt: e.now}}
		}
		var r Readiness
		if op.Ready != nil {
			r = op.Ready(e.history.failed[op.ID])
		}
		switch {
		case r.Result != nil:
			return nil, &finished{op, *r.Result}
		case r.Later:
			continue
		case r.NextInvocation && len(e.running) > 0: // the result of what is in progress causes one
			continue
		case r.NextInvocation && e.pending.results:
			e.stopping = true
			return nil, nil
		case r.Mark != nil && !op.marked:
			op.marked = true
			e.command(r.Mark)
			e.pending.durable = true
			e.fail(op, r.Failed)
		}
		ready = append(ready, op)
	}
	return ready, nil
}

// flush writes what is pending if it must be on disk before something begins, or while something is in progress, which
// may take as long as the invocation. So does what something at the server waits for.
func (e *Engine) flush(ctx context.Context, beginning bool) error {
	many := len(e.pending.commands) >= mostCommands/2 || e.pending.bytes > manyBytes
	durable := e.pending.durable || e.pending.results && many
	switch meanwhile := beginning || len(e.running) > 0; {
	case e.stopping || !meanwhile || !durable && !e.pending.starts:
		return nil
	case e.Host == nil:
		e.stopping = durable && beginning
		return nil
	}
	return e.commit(ctx, e.write())
}

const (
	// mostCommands is how many commands the server takes at once, and mostBytes how many bytes their payloads may have:
	// the server takes 16 MiB with all that comes with them.
	mostCommands = 1000
	mostBytes    = 15 << 20
	// manyBytes of payloads are too many to wait for others, or for the answer, which has the run's output too.
	manyBytes = 1 << 20
)

// parts yields commands in parts that the server takes.
func (e *Engine) parts(commands []any) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for len(commands) > 0 {
			n, bytes := 1, e.size(commands[0])
			for ; n < min(len(commands), mostCommands); n++ {
				if bytes += e.size(commands[n]); bytes > mostBytes {
					break
				}
			}
			if !yield(commands[:n]) {
				return
			}
			commands = commands[n:]
		}
	}
}

// commit writes during the invocation, and learns what the log has got since.
func (e *Engine) commit(ctx context.Context, a Answer) error {
	for part := range e.parts(a.Commands) {
		events, err := e.Host.Commit(ctx, Answer{Commands: part, Open: a.Open}, e.last)
		if err != nil {
			return err
		}
		if err := e.learnAll(events); err != nil {
			return err
		}
	}
	e.listen()
	return nil
}

// listen has the log read after a while, since it was read just now.
func (e *Engine) listen() {
	if e.readLog = nil; e.Host != nil && e.Listen > 0 {
		e.readLog = time.After(e.Listen)
	}
}

// hear learns what the log has got while inline operations are in progress. If it cannot be read, it is read again
// later: nothing depends on it.
func (e *Engine) hear(ctx context.Context) error {
	defer e.listen()
	ctx, cancel := context.WithTimeout(ctx, e.Listen)
	defer cancel()
	events, err := e.Host.Read(ctx, e.last)
	if err != nil {
		return nil
	}
	return e.learnAll(events)
}

// fit writes what does not fit into the answer, and reports whether the log has got something new to deliver.
func (e *Engine) fit(ctx context.Context) (more bool, err error) {
	if e.Host == nil || len(e.pending.commands) < mostCommands && e.pending.bytes <= manyBytes {
		return false, nil
	}
	err = e.commit(ctx, e.write())
	return !e.order.empty(), err
}

// begin executes an inline operation.
func (e *Engine) begin(ctx context.Context, op *Operation) {
	e.idle = without(e.idle, op)
	e.running = append(e.running, op)
	if e.inline != nil {
		return
	}
	go func() {
		f := finished{op, Result{Err: fmt.Errorf("inline step %s at %s: %w", op.ID, op.Place, errGoexit)}}
		defer func() { e.results <- f }() // also after Goexit
		f.Result = op.Execute(ctx)
	}()
}

// without removes an operation from a list.
func without(list []*Operation, op *Operation) []*Operation {
	return slices.DeleteFunc(list, func(other *Operation) bool { return other == op })
}

// record makes the commands that record what an inline operation has done, and delivers its result if it has one.
func (e *Engine) record(f finished) error {
	op := f.op
	e.running = without(e.running, op)
	if m := e.misuse.Load(); m != nil { // perhaps its own, which has ended it
		return m
	}
	if f.Err != nil {
		return f.Err
	}
	for _, a := range f.Failed {
		a.StartedAt, a.EndedAt = inMilliseconds(a.StartedAt), inMilliseconds(a.EndedAt)
		e.command(op.Retry(a))
		e.fail(op, a)
	}
	if f.Output == nil && f.Error == nil { // it is tried again
		if op.Kind == KindInline {
			op.resting = true
			e.hasResult(op)
			e.idle = append(e.idle, op)
			return nil
		}
		e.pending.starts, op.remote = true, true
		e.pending.created = append(e.pending.created, op)
		return nil
	}
	r := Recorded{Seen: e.order.seen, StartedAt: inMilliseconds(f.StartedAt), EndedAt: inMilliseconds(f.EndedAt)}
	e.command(op.Record(f.Result, r))
	e.hasResult(op)
	event := &Event{Type: "step_completed", ID: op.ID, Payload: f.Output, Data: Data{Recorded: r}, Stored: f.Stored}
	if f.Error != nil {
		event.Type, event.Payload = "step_failed", f.Error
	}
	e.recorded = append(e.recorded, event)
	return e.deliver(event)
}

// hasResult notes that what is pending has a result of an operation, or an attempt.
func (e *Engine) hasResult(op *Operation) {
	e.pending.results = true
	if e.pending.durable = e.pending.durable || op.Durable; e.pending.durable && e.pending.due == nil && e.Host != nil {
		e.pending.due = time.After(linger)
	}
}

// fail keeps a failed attempt of an operation that is tried again.
func (e *Engine) fail(op *Operation, a Attempt) {
	e.history.failed[op.ID] = append(e.history.failed[op.ID], Event{
		Type: "step_retrying", ID: op.ID, At: a.EndedAt, Payload: a.Error, Data: Data{RetryAfter: a.EndedAt.Add(a.Pause)},
	})
}
