package stepwell

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// awaitable is something that a workflow can wait for.
type awaitable interface {
	ready() bool
	// abandon ends what nobody waits for any more.
	abandon(reason string)
	// wasCancelled reports whether it is ready only because it was cancelled.
	wasCancelled() bool
}

// Future is the result of something that has begun.
type Future[T any] struct {
	done  func() bool
	get   func() (T, error)
	stop  func(reason string) // nil if there is nothing to stop
	op    *engine.Operation   // that it is the result of; nil if it is none
	scope *cancelScope        // of the coroutine that it is the result of; nil if it is none
}

func (f *Future[T]) ready() bool { return f.done() }

func (f *Future[T]) abandon(reason string) {
	if f.stop != nil && !f.done() {
		f.stop(reason)
	}
}

func (f *Future[T]) wasCancelled() bool { return f.op != nil && f.op.Cancelled && !f.op.Done() }

// failed returns a future that has failed already.
func failed[T any](err error) *Future[T] {
	return &Future[T]{done: func() bool { return true }, get: func() (T, error) { return *new(T), err }}
}

// Await waits for the result. If the handle's part of the workflow is cancelled first, the error is [ErrCancelled]; but
// a coroutine or a child that is cancelled too is waited for, since it may have something to clean up.
func (f *Future[T]) Await(w *Context) (T, error) {
	w.co.Check()
	return f.rest(w)
}

// rest is [Future.Await] for a caller that has checked its use of the handle.
func (f *Future[T]) rest(w *Context) (T, error) {
	w.co.RestOn(f.op, f.awaited(w))
	if !f.done() || f.wasCancelled() && w.scope.err != nil {
		return *new(T), w.scope.err
	}
	return f.get()
}

// awaited returns whether nobody has to wait any longer.
func (f *Future[T]) awaited(w *Context) func() bool {
	return func() bool {
		return f.done() || w.scope.err != nil && !f.cleansUp()
	}
}

// cleansUp reports whether it was cancelled, and may still have something to clean up.
func (f *Future[T]) cleansUp() bool {
	return f.scope != nil && f.scope.err != nil || f.op != nil && f.op.Kind == engine.KindChild && f.op.Cancelled
}

// AwaitWithin waits for the result, but not longer than d. Then the error is [ErrTimeout], and what has begun is
// cancelled.
func (f *Future[T]) AwaitWithin(w *Context, d time.Duration) (T, error) {
	v, err := takeWithin(w, f, d)
	if f.scope != nil && f.scope.err != nil { // it may have something to clean up
		w.co.Await(f.done)
	}
	return v, err
}

// Cancel cancels what has begun, if it has not ended. The result is then an error that is [ErrCancelled], except that
// of a coroutine, whose waits return that error, and of a child, which is asked: theirs is what they return.
func (f *Future[T]) Cancel(w *Context, reason string) {
	w.co.Check()
	f.abandon(reason)
}

// Go runs fn in a coroutine. The name is part of the IDs of what it asks for.
func Go[T any](w *Context, name string, fn func(*Context) (T, error)) *Future[T] {
	var (
		v    T
		err  error
		done bool
	)
	scope := w.scope.within()
	w.co.Go(name, engine.Caller(), func(co *engine.Coroutine) {
		inner := w.with(co)
		inner.scope = scope
		v, err = fn(inner)
		done, scope.over = true, true
	})
	return &Future[T]{
		done: func() bool { return done }, get: func() (T, error) { return v, err }, stop: scope.cancel, scope: scope,
	}
}

// All waits for all futures. Its error joins theirs.
func All[T any](w *Context, futures ...*Future[T]) ([]T, error) {
	results, errs := make([]T, len(futures)), make([]error, len(futures))
	all := make([]func() bool, len(futures))
	for i, f := range futures {
		all[i] = f.awaited(w)
	}
	w.co.AwaitAll(all)
	for i, f := range futures {
		results[i], errs[i] = f.Await(w)
	}
	return results, errors.Join(errs...)
}

// AsCompleted yields all futures as they end, each with its index, and waits in between. None is cancelled. If the
// handle's part of the workflow is cancelled, the rest comes at once, and its Await returns [ErrCancelled].
func AsCompleted[T any](w *Context, futures ...*Future[T]) iter.Seq2[int, *Future[T]] {
	return func(yield func(int, *Future[T]) bool) {
		left := make([]int, len(futures))
		for i := range left {
			left[i] = i
		}
		done := func(i int) bool { return futures[i].done() }
		for len(left) > 0 {
			w.co.Await(func() bool { return w.scope.err != nil || slices.ContainsFunc(left, done) })
			n := max(0, slices.IndexFunc(left, done))
			i := left[n]
			left = slices.Delete(left, n, n+1)
			if !yield(i, futures[i]) {
				return
			}
		}
	}
}

// first waits for the first of several, cancels the others, and returns its index; -1 if the handle's part of the
// workflow is cancelled first.
func (w *Context) first(of []awaitable) int {
	index := func() int { return slices.IndexFunc(of, awaitable.ready) }
	w.co.Await(func() bool { return w.scope.err != nil || index() >= 0 })
	if w.scope.err != nil { // what was cancelled with it is ready too, but did not come first
		return slices.IndexFunc(of, func(a awaitable) bool { return a.ready() && !a.wasCancelled() })
	}
	first := index()
	for i, a := range of {
		if i != first {
			a.abandon("something else came first")
		}
	}
	return first
}

// kept is what is not cancelled when something else comes first.
type kept struct{ awaitable }

func (kept) abandon(string) {}

// takeWithin waits for a source, but not longer than d.
func takeWithin[T any](w *Context, source Source[T], d time.Duration) (T, error) {
	switch w.first([]awaitable{source, w.Timer(d)}) {
	case 0:
		return source.take(w)
	case 1:
		return *new(T), ErrTimeout
	default:
		return *new(T), w.scope.err
	}
}

// MapOption configures [Map] and [MapBy].
type MapOption func(*mapOptions)

type mapOptions struct {
	limit   int
	collect bool
}

// Concurrency limits how many items are in progress at once, from 1. By default all are.
func Concurrency(n int) MapOption { return func(o *mapOptions) { o.limit = n } }

// CollectErrors makes a map go on after an error. Its error then joins those of all items.
func CollectErrors() MapOption { return func(o *mapOptions) { o.collect = true } }

// Map runs fn for each item, in parallel, and returns the results in the order of the items. At the first error it
// cancels the others, waits until their functions have returned, and returns that error. IDs of what fn asks for
// contain the item's index.
func Map[T, R any](w *Context, items []T, fn func(*Context, T) (R, error), options ...MapOption) ([]R, error) {
	index := make([]string, len(items))
	for i := range items {
		index[i] = strconv.Itoa(i)
	}
	return mapNamed(w, items, index, fn, options)
}

// MapBy is [Map] with IDs that contain the item's key instead of its index. So items can be inserted and reordered
// while runs are in progress. Two items with the same key are an error.
func MapBy[T, R any](
	w *Context, items []T, key func(T) string, fn func(*Context, T) (R, error), options ...MapOption,
) ([]R, error) {
	keys, seen := make([]string, len(items)), map[string]bool{}
	for i, item := range items {
		keys[i] = key(item)
		if seen[keys[i]] {
			return nil, fmt.Errorf("two items have the key %q", keys[i])
		}
		seen[keys[i]] = true
	}
	return mapNamed(w, items, keys, fn, options)
}

func mapNamed[T, R any](
	w *Context, items []T, names []string, fn func(*Context, T) (R, error), options []MapOption,
) ([]R, error) {
	o := mapOptions{limit: len(items)}
	for _, set := range options {
		set(&o)
	}
	if o.limit < 1 && len(items) > 0 {
		return nil, fmt.Errorf("a limit of %d lets no item begin", o.limit)
	}
	results, errs := make([]R, len(items)), make([]error, len(items))
	var next, active int
	var first error
	scope := w.co.Scope.Child("map")
	group := w.scope.within()
	for range min(o.limit, len(items)) {
		active++
		w.co.Go("", engine.Caller(), func(co *engine.Coroutine) {
			for next < len(items) && (first == nil || o.collect) {
				i := next
				next++
				co.Scope = scope.Child(names[i])
				inner := w.with(co)
				inner.scope = group
				results[i], errs[i] = fn(inner, items[i])
				if errs[i] == nil || first != nil {
					continue
				}
				first = errs[i]
				if !o.collect {
					group.cancel("another item failed: " + first.Error())
				}
			}
			active--
		})
	}
	w.co.Await(func() bool { return active == 0 })
	group.over = true
	if o.collect {
		return results, errors.Join(errs...)
	}
	if first != nil {
		return nil, first
	}
	return results, nil
}

// Source is something that gives a value when it is ready: a [Future], a [Hook] or a [Webhook].
type Source[T any] interface {
	awaitable
	take(w *Context) (T, error)
}

func (f *Future[T]) take(*Context) (T, error) { return f.get() }

// Case is one case of a [Select].
type Case[R any] struct {
	of  func(*Context) awaitable
	run func(*Context) (R, error)
}

// Keep keeps what the case waits for from being cancelled when another case comes first.
func (c Case[R]) Keep() Case[R] {
	return Case[R]{of: func(w *Context) awaitable { return kept{c.of(w)} }, run: c.run}
}

// On is the case that the source is ready. An error of the source is the error of the select.
func On[T, R any](source Source[T], fn func(*Context, T) (R, error)) Case[R] {
	return Case[R]{
		of: func(*Context) awaitable { return source },
		run: func(w *Context) (R, error) {
			v, err := source.take(w)
			if err != nil {
				return *new(R), err
			}
			return fn(w, v)
		},
	}
}

// After is the case that d is over.
func After[R any](d time.Duration, fn func(*Context) (R, error)) Case[R] {
	return Case[R]{of: func(w *Context) awaitable { return w.Timer(d) }, run: fn}
}

// Select waits for the first case, as the log has it, and returns what its function returns. What the other cases wait
// for is cancelled, except hooks and cases with [Case.Keep].
func Select[R any](w *Context, cases ...Case[R]) (R, error) {
	of := make([]awaitable, len(cases))
	for i, c := range cases {
		of[i] = c.of(w)
	}
	first := w.first(of)
	if first < 0 {
		return *new(R), w.scope.err
	}
	return cases[first].run(w)
}

// Scope returns a handle whose IDs contain the name, for loops: an iteration that is named by its key keeps its IDs
// when others are inserted before it.
func (w *Context) Scope(name string) *Context {
	w.co.Check()
	return w.with(w.co.In(name))
}

// Value returns what fn made when the workflow came here for the first time, such as a secret token. It is recorded,
// and on disk before the next step begins. Fn must not fail, and does no I/O.
func Value[T any](w *Context, name string, fn func() T) T {
	v, err := Do(w.Detached(), name, func(context.Context) (T, error) { return fn(), nil }, durable)
	if err != nil {
		panic(err)
	}
	return v
}

// Patched reports whether new code is to be used here: true if the workflow comes here for the first time, and when it
// repeats what it did after that; false if this run has passed here before the patch existed. Each scope decides anew,
// so that a long loop takes new code at its next iteration.
func (w *Context) Patched(id string) bool {
	w.co.Check()
	id = w.co.Scope.ID("patch:" + id)
	if !w.exec.engine.Known(engine.KindMark, id) && !w.exec.engine.AtEnd() {
		return false
	}
	w.ask(markOperation(id))
	return true
}
