package stepwell

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Saga undoes what a workflow has done when it ends with an error:
//
//	saga := w.Saga()
//	defer saga.OnError(&err)
//	paid, err := Charge.Run(w, order, Charge.Undo(refund))
//
// Compensations run in reverse order, one at a time, each under a scope of its own.
type Saga struct {
	w       *W
	entries []compensation
}

type compensation struct {
	name string
	// settle waits until it is known whether there is something to undo, and reports it.
	settle func(*W) bool
	undo   func(*W) error
}

// Saga returns a new saga. Steps that are started with the handle, or with one of a coroutine in it, and have an
// [Step.Undo], belong to it.
func (w *W) Saga() *Saga {
	w.co.Check()
	w.saga = &Saga{w: w}
	return w.saga
}

// Add adds a compensation for something that has been done.
func (s *Saga) Add(name string, undo func(*W) error) {
	s.entries = append(s.entries, compensation{name, func(*W) bool { return true }, undo})
}

// Forget forgets all compensations, when what was done is to stay.
func (s *Saga) Forget() { s.entries = nil }

// OnError runs the compensations if *err is not nil, and joins their errors to it. It is to be deferred with the address
// of the workflow's named error. While the workflow only waits, it does nothing.
func (s *Saga) OnError(err *error) {
	if s.w.co.Ending() || *err == nil || isHeld(*err) {
		return
	}
	*err = errors.Join(*err, s.Compensate())
}

// Compensate runs the compensations now. What is still in progress is waited for, and undone if it succeeds. A
// compensation that fails does not keep the others from running.
func (s *Saga) Compensate() error {
	var errs []error
	entries := s.entries
	s.entries = nil
	for _, c := range slices.Backward(entries) {
		if !c.settle(s.w) {
			continue
		}
		if err := c.undo(s.w.with(s.w.co.In("undo." + c.name))); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Undo is an option for a run of the step: the compensation, which gets the step's input and output.
func (s *Step[I, O]) Undo(fn func(w *W, in I, out O) error) StepOption {
	return func(o *stepOptions) {
		o.undo = func(w *W, in, future any) {
			f := future.(*Future[O])
			w.saga.entries = append(w.saga.entries, compensation{
				name: s.name,
				settle: func(w *W) bool {
					_, err := f.Await(w)
					return err == nil
				},
				undo: func(w *W) error {
					out, err := f.get()
					if err != nil {
						return err
					}
					return fn(w, in.(I), out)
				},
			})
		}
	}
}

func isHeld(err error) bool {
	h := (*heldError)(nil)
	return errors.As(err, &h)
}

// markOperation returns an operation that only records that the workflow came here.
func markOperation(id string) *engine.Operation {
	return &engine.Operation{Kind: engine.KindMark, ID: id, Name: "patch", Command: map[string]any{
		"type": "recordStep", "id": id, "name": "patch", "output": true,
	}}
}
