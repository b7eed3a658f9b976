package stepwell

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Saga is what [WithSaga] undoes when its function ends with an error. Compensations run in reverse order, one at a
// time, each under a scope of its own. Cancellation does not touch them.
type Saga struct {
	w       *Context
	entries []compensation
}

type compensation struct {
	name string
	// stop cancels what is to be undone, if it is in progress; nil if it has been done.
	stop func(reason string)
	// settle waits until it is known whether there may be something to undo, and reports it; nil if there is.
	settle func(*Context) bool
	undo   func(*Context) error
}

// CompensationError says which compensations have failed.
type CompensationError struct{ Errors []error }

// Error implements error.
func (e *CompensationError) Error() string { return "compensate: " + errors.Join(e.Errors...).Error() }

// Unwrap returns the errors of the compensations.
func (e *CompensationError) Unwrap() []error { return e.Errors }

// WithSaga calls fn, and undoes what it has done if it returns an error:
//
//	return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (Receipt, error) {
//		paid, err := Charge.Run(w, order, Charge.Undo(refund))
//		…
//	})
//
// Steps that are started with fn's handle, or with one of a coroutine in it, and have a [Step.Undo], belong to the
// saga. The errors of compensations that fail are joined to that of fn as a [*CompensationError]. Nothing is undone
// while the workflow only waits, nor after a panic or an error of [Block], since the run has not failed then.
//
// What fn has done is to stay once it has returned without an error, also if something fails later. A part of fn that
// may fail by itself, and is undone by itself, has a WithSaga of its own.
func WithSaga[T any](w *Context, fn func(*Context, *Saga) (T, error)) (T, error) {
	w.co.Check()
	inner := w.with(w.co)
	inner.saga = &Saga{w: inner}
	v, err := fn(inner, inner.saga)
	if err == nil || isBlocked(err) || isContinuation(err) {
		return v, err
	}
	if failed := inner.saga.compensate(); failed != nil {
		err = errors.Join(err, failed)
	}
	return v, err
}

// Add adds a compensation for something that has been done.
func (s *Saga) Add(name string, undo func(*Context) error) {
	s.entries = append(s.entries, compensation{name: name, undo: undo})
}

// compensate runs the compensations. Steps in progress are waited for, and undone unless it is known that they have
// done nothing; those that are executed here are cancelled first. A compensation that fails does not keep the others
// from running. The error is a [*CompensationError].
func (s *Saga) compensate() error {
	var errs []error
	w := s.w.Detached()
	for _, c := range s.entries {
		if c.stop != nil {
			c.stop("the workflow compensates")
		}
	}
	for _, c := range slices.Backward(s.entries) {
		if c.settle != nil && !c.settle(w) {
			continue
		}
		if err := c.undo(w.with(w.co.In("undo:" + c.name))); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", c.name, err))
		}
	}
	if errs == nil {
		return nil
	}
	return &CompensationError{errs}
}

// OnEnd calls fn when the workflow's function has returned, with its error, before the run ends. Functions are called
// in reverse order. Unlike deferred functions, they are not called when the workflow only waits.
func (w *Context) OnEnd(fn func(w *Context, err error)) {
	w.co.Check()
	w.exec.onEnd = append(w.exec.onEnd, fn)
}

// end calls the functions of [Context.OnEnd], and ends the children that are in progress.
func (w *Context) end(err error) {
	if isBlocked(err) {
		return
	}
	for _, fn := range slices.Backward(w.exec.onEnd) {
		fn(w.Detached(), err)
	}
	w.exec.endChildren(w.co)
}

// Undo is an option for a run of the step: the compensation, which gets the step's input and output. The output is nil
// if nobody knows what the step has done: it has failed because its last attempt had no answer, took too long,
// panicked, ended its process, was cancelled while it was in progress, or returned an error that is not permanent, such
// as a lost connection. So undo by what is known without the output, and let that do nothing if there is nothing. A
// step that has failed with an error of [Fail], [Permanent] or an [ErrorKind] has done nothing, and is not undone.
//
// If the step is cancelled while the server executes it, the compensation waits for its end. The grace of a
// cancellation should therefore be longer than the step's attempts take.
func (s *Step[I, O]) Undo(fn func(w *Context, in I, out *O) error) StepOption {
	by := placeOf(fn)
	return stepOption(func(o *stepOptions) {
		o.undoneBy = by
		o.undo = func(w *Context, in, future any) {
			f := future.(*Future[O])
			w.saga.entries = append(w.saga.entries, compensation{
				name:   s.name,
				stop:   f.abandon,
				settle: f.mayHaveHappened,
				undo:   func(w *Context) error { return fn(w, in.(I), f.output()) },
			})
		}
	})
}

// placeOf returns the name of a function, or where it begins if it has none, as order.go:41.
func placeOf(fn any) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil { // fn is nil
		return ""
	}
	_, name, _ := strings.Cut(path.Base(f.Name()), ".")
	if strings.Contains(name, "func") && strings.ContainsAny(name, "0123456789") { // a literal, as init.func1
		file, line := f.FileLine(f.Entry())
		return fmt.Sprintf("%s:%d", path.Base(file), line)
	}
	return strings.TrimSuffix(name, "-fm") // of a method
}

// mayHaveHappened waits for the real end of a step, even if it was cancelled, and reports whether it may have done
// something.
func (f *Future[T]) mayHaveHappened(w *Context) bool {
	if f.op == nil {
		return false
	}
	if f.op.Cancelled && len(f.op.Received) == 0 && f.op.Kind != engine.KindInline {
		w.ask(markOperation(w.co.Scope.ID("cancelled:" + f.op.ID))) // the end of what was cancelled does not wake the run
	}
	w.co.Await(f.op.Done)
	e, failed := errors.AsType[*StepError](f.err())
	return !failed || slices.Contains(codesOfUnknown, e.Code)
}

// codesOfUnknown are the codes of steps of which nobody knows what they have done. Any other code comes from the step,
// whose error was permanent.
var codesOfUnknown = []string{
	"", codeTimeout, codeCancelled, codeCrashed, codePanic, codeUnencodable, "no_answer", "unreachable", codeTooLarge,
	"nested_too_deeply", "number_out_of_range", "unpaired_surrogate", "store_limit",
}

// err returns the error of what has ended.
func (f *Future[T]) err() error {
	_, err := f.get()
	return err
}

// output returns the output of a step that has ended; nil if it has failed.
func (f *Future[T]) output() *T {
	v, err := f.get()
	if err != nil {
		return nil
	}
	return &v
}

func isBlocked(err error) bool {
	_, ok := errors.AsType[*blockedError](err)
	return ok
}

// markOperation returns an operation that only records that the workflow came here.
func markOperation(id string) *engine.Operation {
	return &engine.Operation{Kind: engine.KindMark, ID: id, Name: "patch", Command: map[string]any{
		"type": "recordStep", "id": id, "name": "patch", "output": true,
	}}
}
