package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Coroutine is a goroutine of a workflow. Of all coroutines of a run, exactly one runs at a time, so code may share
// variables without locks.
type Coroutine struct {
	s *scheduler
	// Scope makes the IDs of what the coroutine asks for.
	Scope *Scope
	// Place is where the coroutine was started, as file:line.
	Place string

	of        *Coroutine     // the coroutine, of a view of it; see In
	goroutine atomic.Uintptr // 0 unless it runs or rests; see [goroutine]
	id        atomic.Uint64  // of the goroutine, in stacks
	resume    chan bool      // true: continue; false: end
	until     func() bool    // what it waits for; nil if it has not started
	on        *Operation     // without whose change until stays false; nil if that is not known
	number    int            // in the order of creation
	awake     bool           // it is one of those that may be ready
	all       []func() bool  // the conditions of until, if it waits for all of them
	ended     bool
}

// Panic is what user code panicked with.
type Panic struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Stuck says that a coroutine has not rested for too long: it computes, or waits for something outside of the workflow.
type Stuck struct {
	// Started is where the coroutine was started, as file:line, and Stack what it does.
	Started string
	Stack   []byte
}

// Error implements error.
func (s *Stuck) Error() string {
	return fmt.Sprintf("the function started at %s has neither returned nor waited for ten seconds: do work in"+
		" steps, wait only with the workflow's handle, and look for a loop that never ends", s.Started)
}

// scheduler passes control between the engine and its coroutines. Passing it over a channel orders all memory accesses
// of the workflow.
type scheduler struct {
	all        []*Coroutine                // in the order of their creation
	started    int                         // number of coroutines that were ever started
	ended      int                         // number of coroutines in all that have ended
	awake      []*Coroutine                // those that may be ready, in the order of their creation
	current    atomic.Pointer[Coroutine]   // nil while the engine runs
	driver     atomic.Uintptr              // goroutine of the engine, during an invocation
	evaluating *Coroutine                  // whose condition is being evaluated; nil for nobody
	misuse     atomic.Pointer[MisuseError] // the first, even if the workflow's code has recovered from it
	rested     chan struct{}
	ending     atomic.Bool
	left       bool // to a coroutine that does not rest
	panic      *Panic
	// misused gets a value when a goroutine that is no coroutine has used one, and was ended: what waits for it never
	// rests.
	misused chan struct{}
	stuck   *time.Timer // comes when the current coroutine has run for too long
	// tracked, if it is not nil, gets the operations that conditions ask for.
	tracked func(*Operation)
}

func newScheduler() *scheduler {
	s := &scheduler{rested: make(chan struct{}), misused: make(chan struct{}, 1)}
	s.stuck = time.NewTimer(stuckAfter)
	s.stuck.Stop()
	return s
}

// start creates a coroutine. It runs at the next rest.
func (s *scheduler) start(scope *Scope, place string, fn func(*Coroutine)) *Coroutine {
	c := &Coroutine{s: s, Scope: scope, Place: place, resume: make(chan bool)}
	c.number, s.started = s.started, s.started+1
	s.all = append(s.all, c)
	s.wake(c)
	go c.run(fn)
	return c
}

// errGoexit is what a function panics with, in effect, that ends its goroutine.
var errGoexit = errors.New("the function has ended its goroutine with runtime.Goexit, as t.FailNow does: return" +
	" instead")

func (c *Coroutine) run(fn func(*Coroutine)) {
	defer func() { c.s.rested <- struct{}{} }() // runs last, and also after Goexit
	defer func() { c.ended = true }()
	if !<-c.resume {
		return
	}
	c.id.Store(goroutineID())
	c.goroutine.Store(goroutine())
	defer c.goroutine.Store(0)
	returned := false
	defer func() {
		v := recover()
		if v == nil && !returned && !c.s.ending.Load() {
			v = errGoexit
		}
		c.s.panicked(v)
	}()
	fn(c)
	returned = true
}

// panicked notes what user code has panicked with; nil for nothing. The first panic counts.
func (s *scheduler) panicked(value any) {
	if value != nil && s.panic == nil {
		s.panic = &Panic{value, debug.Stack()}
	}
}

// failure returns why the workflow cannot go on; nil if it can.
func (s *scheduler) failure() error {
	if m := s.misuse.Load(); m != nil {
		return m
	}
	if s.panic != nil {
		return s.panic
	}
	return nil
}

// wake makes a coroutine one of those that may be ready.
func (s *scheduler) wake(c *Coroutine) {
	if !c.awake && !c.ended {
		c.awake = true
		s.awake = slices.Insert(s.awake, s.firstAwake(c.number), c)
	}
}

// WakeAll makes all coroutines such that may be ready. It must be called when something has changed that a condition
// given to [Coroutine.RestOn] depends on, besides its operation.
func (s *scheduler) WakeAll() {
	for _, c := range s.all {
		s.wake(c)
	}
}

// firstAwake returns the index of the first coroutine that may be ready, from a number on.
func (s *scheduler) firstAwake(number int) int {
	i, _ := slices.BinarySearchFunc(s.awake, number, func(c *Coroutine, n int) int { return cmp.Compare(c.number, n) })
	return i
}

// Wake wakes the coroutines that wait for the operation.
func (o *Operation) Wake() {
	for _, c := range o.waiting {
		c.s.wake(c)
	}
	o.waiting = o.waiting[:0]
}

// rest runs all coroutines, in the order of their creation, until none of them can continue. It stops at a panic. An
// error means that a coroutine was running when the context ended.
func (s *scheduler) rest(ctx context.Context) error {
	for moved := true; moved; {
		moved = false
		for c := s.nextReady(0); c != nil; c = s.nextReady(c.number + 1) { // running coroutines may start or wake others
			if err := s.pass(ctx, c, true); err != nil {
				return err
			}
			if c.ended {
				s.ended++
			}
			moved = true
		}
	}
	if s.ended > len(s.all)/2 {
		s.all, s.ended = slices.DeleteFunc(s.all, func(c *Coroutine) bool { return c.ended }), 0
	}
	return nil
}

// nextReady returns the next coroutine that can continue, from a number on; nil if there is none, or after a panic.
func (s *scheduler) nextReady(number int) *Coroutine {
	defer func() {
		s.panicked(recover()) // of a condition
		s.evaluating = nil
	}()
	for i := s.firstAwake(number); i < len(s.awake) && s.panic == nil; {
		c := s.awake[i]
		s.evaluating = c
		switch {
		case !c.ended && (c.until == nil || c.until()):
			return c
		case c.ended || c.on != nil:
			c.awake = false
			s.awake = slices.Delete(s.awake, i, i+1)
			if !c.ended {
				c.on.waiting = append(c.on.waiting, c)
			}
		default:
			i++
		}
	}
	return nil
}

// pass lets the coroutine run until it rests or ends. An error means that it has not when the context ended. Then
// nothing here may be used any more.
func (s *scheduler) pass(ctx context.Context, c *Coroutine, on bool) error {
	s.current.Store(c)
	s.stuck.Reset(stuckAfter)
	defer s.stuck.Stop()
	misused := s.misused
	if !on { // it ends anyway
		misused = nil
	}
	c.resume <- on
	select {
	case <-s.rested:
		s.current.Store(nil)
		return nil
	case <-misused:
		return s.leave(c, s.misuse.Load())
	case <-s.stuck.C:
		return s.leave(c, &Stuck{c.Place, stackOf(c.id.Load())})
	case <-ctx.Done():
		return s.leave(c, context.Cause(ctx))
	}
}

// stuckAfter is how long a coroutine may run without resting: code of workflows neither computes nor waits by itself.
const stuckAfter = 10 * time.Second

// leave leaves the scheduler to a coroutine that does not rest. When it does so all the same, all coroutines are ended.
func (s *scheduler) leave(c *Coroutine, cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = &Stuck{c.Place, stackOf(c.id.Load())}
	}
	s.left = true
	s.ending.Store(true)
	go func() {
		<-s.rested
		s.end()
	}()
	return cause
}

// end ends all coroutines, the youngest first, one at a time. Their deferred functions run, but can do nothing more
// with the workflow.
func (s *scheduler) end() {
	s.ending.Store(true)
	for _, c := range slices.Backward(s.all) {
		if !c.ended {
			_ = s.pass(context.Background(), c, false) // the context does not end
		}
	}
	s.all, s.awake = nil, nil
}

// Ending reports whether the coroutine is being ended, because the workflow has to wait for a later invocation.
func (c *Coroutine) Ending() bool { return c.s.ending.Load() }

// Await rests until the condition is true. The condition must depend only on what was delivered and on variables of the
// workflow.
func (c *Coroutine) Await(until func() bool) {
	c.Check()
	c.RestOn(nil, until)
}

// RestOn is [Coroutine.Await] for a caller that has checked its use of the coroutine. If there is an operation, the
// condition stays false until that changes, or [Engine.WakeAll] is called. Then its cost does not depend on what other
// coroutines do.
func (c *Coroutine) RestOn(op *Operation, until func() bool) {
	self := c.self()
	if self.evaluate(until) {
		return
	}
	self.on, self.until = op, until
	self.s.rested <- struct{}{}
	if !<-self.resume {
		runtime.Goexit()
	}
}

// evaluate evaluates a condition.
func (c *Coroutine) evaluate(condition func() bool) bool {
	c.s.evaluating = c
	defer func() { c.s.evaluating = nil }()
	return condition()
}

// AwaitAll rests until all conditions are true. The workflow is then invoked when the last of them comes true, not for
// each.
func (c *Coroutine) AwaitAll(conditions []func() bool) {
	self := c.self()
	self.all = conditions
	c.Await(func() bool {
		return !slices.ContainsFunc(conditions, func(done func() bool) bool { return !done() })
	})
	self.all = nil
}

// Go starts a coroutine with a scope of its own.
func (c *Coroutine) Go(name, place string, fn func(*Coroutine)) *Coroutine {
	c.Check()
	return c.s.start(c.Scope.Child(name), place, fn)
}

// In returns a view of the coroutine with a scope of its own.
func (c *Coroutine) In(name string) *Coroutine {
	return &Coroutine{s: c.s, of: c.self(), Scope: c.Scope.Child(name), Place: c.Place, resume: c.resume}
}

// self returns the coroutine itself, of a view of it.
func (c *Coroutine) self() *Coroutine {
	if c.of != nil {
		return c.of
	}
	return c
}

// Check refuses uses of the coroutine by anybody else, and in conditions: with a panic, a [*MisuseError], which also
// ends the invocation if the caller recovers from it. A goroutine that is no coroutine is ended instead, since a panic
// would end the process. While the coroutine is being ended, Check ends the calling deferred function.
func (c *Coroutine) Check() {
	c.CheckRead()
	if c.s.evaluating != nil {
		c.s.refuse(c.misuse(usedInCondition))
	}
}

// CheckRead is [Coroutine.Check] for uses that conditions may have.
func (c *Coroutine) CheckRead() {
	caller, self, s := goroutine(), c.self(), c.s
	switch {
	case caller == self.goroutine.Load() && !s.ending.Load():
		return
	case caller == s.driver.Load() && s.evaluating == self:
		return
	}
	running := s.current.Load()
	switch {
	case s.ending.Load():
		runtime.Goexit()
	case running != nil && running.goroutine.Load() == caller:
		s.refuse(c.misuse(usedInside, running.Place))
	case caller == s.driver.Load():
		s.refuse(c.misuse(usedInCondition))
	default:
		if s.misuse.CompareAndSwap(nil, c.misuse(usedInGoroutine)) {
			s.misused <- struct{}{}
		}
		runtime.Goexit()
	}
}

// refuse keeps the first misuse, and panics with it.
func (s *scheduler) refuse(m *MisuseError) {
	s.misuse.CompareAndSwap(nil, m)
	panic(m)
}

// goroutineID returns the number of the calling goroutine, which the runtime shows only in stacks.
func goroutineID() uint64 {
	line := make([]byte, 64)
	line = line[:runtime.Stack(line, false)]
	digits, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("goroutine ")), []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic("engine: cannot read the goroutine's number from " + string(line))
	}
	return id
}

// stackOf returns the stack of a goroutine; empty if it has ended.
func stackOf(goroutine uint64) []byte {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(stack, fmt.Appendf(nil, "goroutine %d ", goroutine)) {
			return stack
		}
	}
	return nil
}
