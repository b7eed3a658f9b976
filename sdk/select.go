package stepwell

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Source is something that gives a value when it is ready: a [Future], [Hook], [Webhook] or [Cancellation].
type Source[T any] interface {
	Awaitable
	take(w *W) (T, error)
}

func (f *Future[T]) take(*W) (T, error) { return f.get() }

// Case is one case of a [Select].
type Case[R any] struct {
	of  func(*W) Awaitable
	run func(*W) (R, error)
}

// Keep keeps what the case waits for from being cancelled when another case comes first.
func (c Case[R]) Keep() Case[R] {
	return Case[R]{of: func(w *W) Awaitable { return Keep(c.of(w)) }, run: c.run}
}

// On is the case that the source is ready. An error of the source is the error of the select.
func On[T, R any](source Source[T], fn func(*W, T) (R, error)) Case[R] {
	return OnResult(source, func(w *W, v T, err error) (R, error) {
		if err != nil {
			return *new(R), err
		}
		return fn(w, v)
	})
}

// OnResult is [On] whose function also gets the error of the source.
func OnResult[T, R any](source Source[T], fn func(*W, T, error) (R, error)) Case[R] {
	return Case[R]{
		of: func(*W) Awaitable { return source },
		run: func(w *W) (R, error) {
			v, err := source.take(w)
			return fn(w, v, err)
		},
	}
}

// After is the case that d is over.
func After[R any](d time.Duration, fn func(*W) (R, error)) Case[R] {
	return Case[R]{of: func(w *W) Awaitable { return w.Timer(d) }, run: fn}
}

// When is the case that the condition is true; see [W.Until].
func When[R any](condition func() bool, fn func(*W) (R, error)) Case[R] {
	return Case[R]{of: func(*W) Awaitable { return conditionMet(condition) }, run: fn}
}

type conditionMet func() bool

func (c conditionMet) ready() bool      { return c() }
func (conditionMet) abandon(string)     {}
func (conditionMet) wasCancelled() bool { return false }

// Select waits for the first case, as the log has it, and returns what its function returns. What the other cases wait
// for is cancelled, except hooks and cases with [Case.Keep].
func Select[R any](w *W, cases ...Case[R]) (R, error) {
	of := make([]Awaitable, len(cases))
	for i, c := range cases {
		of[i] = c.of(w)
	}
	first := w.first(of)
	if first < 0 {
		return *new(R), w.scope.err
	}
	return cases[first].run(w)
}

// Within runs fn in a coroutine for at most d. If it takes longer, everything begun in it is cancelled, and its waits
// return [ErrCancelled]. Within waits until fn has returned, and then returns [ErrTimeout].
func Within[T any](w *W, d time.Duration, fn func(*W) (T, error)) (T, error) {
	return Go(w, "within", fn).AwaitWithin(w, d)
}

// Scope returns a handle whose IDs contain the name, for loops: an iteration that is named by its key keeps its IDs when
// others are inserted before it.
func (w *W) Scope(name string) *W {
	w.co.Check()
	return w.with(w.co.In(name))
}

// Value returns what fn made when the workflow came here for the first time, such as a secret token. It is recorded, and
// on disk before the next step begins. Fn must not fail, and does no I/O.
func Value[T any](w *W, name string, fn func() T) T {
	v, err := Do(w.Detached(), name, func(context.Context) (T, error) { return fn(), nil }, durable)
	if err != nil {
		panic(err)
	}
	return v
}

// Patched reports whether new code is to be used here: true if the workflow comes here for the first time, and when it
// repeats what it did after that; false if this run has passed here before the patch existed. Each scope decides anew, so
// that a long loop takes new code at its next iteration.
func (w *W) Patched(id string) bool {
	w.co.Check()
	id = w.co.Scope.ID("patch:" + id)
	if !w.turn.engine.Known(engine.KindMark, id) && !w.turn.engine.AtEnd() {
		return false
	}
	w.ask(markOperation(id))
	return true
}
