package stepwell

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Awaitable is something that a workflow can wait for: a [Future] or a [Timer].
type Awaitable interface{ ready() bool }

// Future is the result of something that has begun.
type Future[T any] struct {
	done func() bool
	get  func() (T, error)
}

func (f *Future[T]) ready() bool { return f.done() }

// failed returns a future that has failed already.
func failed[T any](err error) *Future[T] {
	return &Future[T]{func() bool { return true }, func() (T, error) { return *new(T), err }}
}

// Await waits for the result.
func (f *Future[T]) Await(w *W) (T, error) {
	w.co.Await(f.done)
	return f.get()
}

// AwaitWithin waits for the result, but not longer than d. Then the error is [ErrTimeout]; what has begun goes on.
func (f *Future[T]) AwaitWithin(w *W, d time.Duration) (T, error) {
	if First(w, f, w.Timer(d)) == Awaitable(f) {
		return f.get()
	}
	return *new(T), ErrTimeout
}

// Go runs fn in a coroutine. The name is part of the IDs of what it asks for.
func Go[T any](w *W, name string, fn func(*W) (T, error)) *Future[T] {
	var (
		v    T
		err  error
		done bool
	)
	w.co.Go(name, engine.Caller(), func(co *engine.Coroutine) {
		v, err = fn(w.with(co))
		done = true
	})
	return &Future[T]{func() bool { return done }, func() (T, error) { return v, err }}
}

// All waits for all futures. Its error joins theirs.
func All[T any](w *W, futures ...*Future[T]) ([]T, error) {
	results, errs := make([]T, len(futures)), make([]error, len(futures))
	for i, f := range futures {
		results[i], errs[i] = f.Await(w)
	}
	return results, errors.Join(errs...)
}

// Both waits for two futures. Its error joins theirs.
func Both[A, B any](w *W, a *Future[A], b *Future[B]) (A, B, error) {
	x, errA := a.Await(w)
	y, errB := b.Await(w)
	return x, y, errors.Join(errA, errB)
}

// First waits until one of several is there, and returns the one that the log has first. If some are there already, it
// is the first of them in the list.
func First(w *W, of ...Awaitable) Awaitable {
	var first Awaitable
	w.co.Await(func() bool {
		for _, a := range of {
			if a.ready() {
				first = a
				return true
			}
		}
		return false
	})
	return first
}

// Until waits until the condition is true. It is evaluated whenever something was delivered, so it must depend only on
// variables of the workflow.
func (w *W) Until(condition func() bool) { w.co.Await(condition) }

// MapOption configures [Map] and [MapBy].
type MapOption func(*mapOptions)

type mapOptions struct {
	limit   int
	collect bool
}

// Limit limits how many items are in progress at once.
func Limit(n int) MapOption { return func(o *mapOptions) { o.limit = n } }

// CollectErrors makes a map go on after an error. Its error then joins those of all items.
func CollectErrors() MapOption { return func(o *mapOptions) { o.collect = true } }

// Map runs fn for each item, in parallel, and returns the results in the order of the items. At the first error it
// begins no more items and returns that error. IDs of what fn asks for contain the item's index.
func Map[T, R any](w *W, items []T, fn func(*W, T) (R, error), options ...MapOption) ([]R, error) {
	index := make([]string, len(items))
	for i := range items {
		index[i] = strconv.Itoa(i)
	}
	return mapNamed(w, items, index, fn, options)
}

// MapBy is [Map] with IDs that contain the item's key instead of its index. So items can be inserted and reordered while
// runs are in progress. Keys must be unique.
func MapBy[T, R any](
	w *W, items []T, key func(T) string, fn func(*W, T) (R, error), options ...MapOption,
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
	w *W, items []T, names []string, fn func(*W, T) (R, error), options []MapOption,
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
	for range min(o.limit, len(items)) {
		active++
		w.co.Go("", engine.Caller(), func(co *engine.Coroutine) {
			for next < len(items) && (first == nil || o.collect) {
				i := next
				next++
				co.Scope = scope.Child(names[i])
				results[i], errs[i] = fn(w.with(co), items[i])
				if errs[i] != nil && first == nil {
					first = errs[i]
				}
			}
			active--
		})
	}
	w.co.Await(func() bool { return active == 0 || first != nil && !o.collect })
	if o.collect {
		return results, errors.Join(errs...)
	}
	if first != nil {
		return nil, first
	}
	return results, nil
}
