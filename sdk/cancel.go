package stepwell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// ErrCancelled is the error of waits in a part of a workflow that was cancelled: the whole run by a request from
// outside, or the function given to [Go] or [Map] by the workflow itself. Nothing new can be begun in that part, except
// with [Context.Detached].
var ErrCancelled = errors.New("it was cancelled")

// The codes of what was cancelled: codeCancelled before it ended, and codeNotBegun before it began.
const (
	codeCancelled = "cancelled"
	codeNotBegun  = "not_begun"
)

// cancelScope is a part of a workflow that is cancelled as a whole.
type cancelScope struct {
	exec  *execution
	inner []*cancelScope
	begun []*engine.Operation // in the order in which they were begun, perhaps without those that have ended
	err   error               // why it was cancelled; nil if it was not
	over  bool                // what it is the scope of has ended
	run   bool                // the scope of the whole run
}

// within returns a new scope, which is cancelled with s.
func (s *cancelScope) within() *cancelScope {
	inner := &cancelScope{exec: s.exec, err: s.err}
	if len(s.inner) == cap(s.inner) {
		s.inner = slices.DeleteFunc(s.inner, func(c *cancelScope) bool { return c.over })
	}
	s.inner = append(s.inner, inner)
	return inner
}

// add adds what was begun in the scope.
func (s *cancelScope) add(op *engine.Operation) {
	if len(s.begun) == cap(s.begun) {
		s.begun = slices.DeleteFunc(s.begun, ended)
	}
	s.begun = append(s.begun, op)
}

// ended reports whether nothing of an operation is left to be cancelled.
func ended(op *engine.Operation) bool {
	return op.Cancelled || op.Kind != engine.KindHook && len(op.Received) > 0
}

// cancel cancels everything that was begun in the scope and has not ended. Hooks of a run that is cancelled stay open,
// since its compensations may use them.
func (s *cancelScope) cancel(reason string) {
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("%w: %s", ErrCancelled, reason)
	s.exec.engine.WakeAll()
	for _, op := range s.begun {
		if !s.run || op.Kind != engine.KindHook {
			s.exec.cancel(op, reason)
		}
	}
	for _, inner := range s.inner {
		inner.cancel(reason)
	}
}

// cancelCommand is the command that cancels a step, a child or a wait.
type cancelCommand struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
	Grace  string `json:"grace,omitempty"`
}

// cancel cancels an operation that has not ended.
func (x *execution) cancel(op *engine.Operation, reason string) {
	if ended(op) {
		return
	}
	op.Cancelled = true
	op.Wake()
	if op.Stop != nil {
		op.Stop(fmt.Errorf("%w: %w", ErrStepCancelled, &failure{Message: reason, Code: codeCancelled}))
	}
	switch op.Kind {
	case engine.KindChild:
		x.askChild(op, reason, op.Grace)
	case engine.KindStep:
		if !op.IsRemote() || op.Undone {
			return
		}
		x.request(engine.KindCancelStep, op, cancelCommand{Type: "cancelStep", ID: op.ID, Reason: oneLine(reason)})
	case engine.KindWait:
		x.request(engine.KindCancelWait, op, cancelCommand{Type: "cancelWait", ID: op.ID})
	case engine.KindHook:
		x.request(engine.KindCloseHook, op, map[string]string{"type": "closeHook", "id": op.ID})
	default: // it needs no command
	}
}

// askChild asks a child to cancel, and has that forced after the grace.
func (x *execution) askChild(op *engine.Operation, reason string, grace time.Duration) {
	x.request(engine.KindCancelStep, op, cancelCommand{
		"cancelStep", op.ID, oneLine(reason), max(grace, 0).String(),
	})
}

// endChildren cancels the children that are in progress when the workflow's function has returned, and waits for their
// end: the server would end them at once.
func (x *execution) endChildren(co *engine.Coroutine) {
	x.children = slices.DeleteFunc(x.children, func(op *engine.Operation) bool { return len(op.Received) > 0 })
	if len(x.children) == 0 {
		return
	}
	all := make([]func() bool, len(x.children))
	for i, op := range x.children {
		x.cancel(op, "the parent has ended")
		all[i] = op.Done
	}
	co.AwaitAll(all)
}

// longestReason limits the reason of a cancellation, in bytes. The server allows 1,024.
const longestReason = 256

// oneLine returns a reason as the contract allows it: without control characters, and not too long.
func oneLine(reason string) string {
	text := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(reason, "?"))
	if len(text) > longestReason {
		text = strings.ToValidUTF8(text[:longestReason], "")
	}
	return text
}

// request asks for an idempotent command about an operation.
func (x *execution) request(kind engine.Kind, about *engine.Operation, command any) {
	x.engine.Request(&engine.Operation{Kind: kind, ID: about.ID, Place: about.Place, Command: command})
}

// stoppable makes the execution of an inline operation end when it is cancelled. What was cancelled before it began is
// not executed.
func (x *execution) stoppable(op *engine.Operation) {
	alive, stop := context.WithCancelCause(context.Background())
	execute := op.Execute
	op.Stop = stop
	op.Execute = func(ctx context.Context) engine.Result {
		var r engine.Result
		begun := alive.Err() == nil
		if begun {
			own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
			defer cancel(nil)
			end := func() { cancel(cmp.Or(context.Cause(alive), context.Cause(ctx))) } // the workflow's cause counts first
			defer context.AfterFunc(alive, end)()
			defer context.AfterFunc(ctx, end)()
			r = execute(own)
		} else {
			r.EndedAt = x.app.now()
		}
		f, cancelled := errors.AsType[*failure](context.Cause(alive))
		if cancelled && !begun {
			f = &failure{f.Message, codeNotBegun, nil}
		}
		switch {
		case r.Output != nil:
		case cancelled:
			r = engine.Result{Error: encodeFailure(*f), StartedAt: r.StartedAt, EndedAt: r.EndedAt}
		case ctx.Err() != nil: // the call was cut short, which is no failure of the step
			r = engine.Result{Err: context.Cause(ctx)}
		}
		return r
	}
}

// Until waits until the condition is true. It is evaluated whenever something was delivered, so it must depend only on
// variables of the workflow. If the handle's part of the workflow is cancelled first, the error is [ErrCancelled].
func (w *Context) Until(condition func() bool) error {
	w.co.Await(func() bool { return condition() || w.scope.err != nil })
	if condition() {
		return nil
	}
	return w.scope.err
}

// Detached returns a handle that cancellation does not touch, for what must be done all the same.
func (w *Context) Detached() *Context {
	w.co.Check()
	detached := *w
	detached.scope = &cancelScope{exec: w.exec}
	return &detached
}

// Cancelled returns the request to cancel the run, as the future of its reason; that is "timeout" if the run's time is
// over. Once there is a request, all waits return [ErrCancelled], except those with a handle of [Context.Detached]. A
// workflow that then returns an error that is [ErrCancelled] ends as cancelled. The server forces that after the grace
// of the request.
func (w *Context) Cancelled() *Future[string] {
	w.co.Check()
	x := w.exec
	return &Future[string]{
		done: func() bool { return x.cancelled != nil },
		get:  func() (string, error) { return x.cancelled.Data.Reason, nil },
	}
}

// endsCancelled reports whether a workflow's error ends its run as cancelled: somebody has asked for that, and all
// compensations have succeeded.
func (x *execution) endsCancelled(err error) bool {
	_, failed := errors.AsType[*CompensationError](err)
	return x.cancelled != nil && errors.Is(err, ErrCancelled) && !failed
}

// observe takes note of an event of the log that was delivered.
func (x *execution) observe(e *engine.Event) {
	switch e.Type {
	case "cancel_requested":
		if x.cancelled == nil {
			x.cancelled = e
			x.root.cancel(e.Data.Reason)
		}
	case "attr_set":
		for _, c := range e.Data.Changes {
			x.attributes.change(c.Key, c.Value, func() int64 { return e.Seq })
		}
	default:
		for key, value := range e.Stored {
			x.store.change(key, value, x.storedAt(e.ID))
		}
	}
}
