package engine

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
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

	of        *Coroutine // the coroutine, of a view of it; see In
	goroutine atomic.Uint64
	resume    chan bool     // true: continue; false: end
	until     func() bool   // what it waits for; nil if it has not started
	all       []func() bool // the conditions of until, if it waits for all of them
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

// scheduler passes control between the engine and its coroutines. Passing it over a channel orders all memory accesses
// of the workflow.
type scheduler struct {
	all     []*Coroutine // in the order of their creation
	current *Coroutine   // nil while the engine runs
	rested  chan struct{}
	ending  bool
	panic   *Panic
	slow    func(place string, stack []byte)
	// inline has the places of inline operations by the goroutine that executes them.
	inline sync.Map
	// tracked, if it is not nil, gets the operations that conditions ask for.
	tracked func(*Operation)
}

func newScheduler(slow func(string, []byte)) *scheduler {
	return &scheduler{rested: make(chan struct{}), slow: slow}
}

// start creates a coroutine. It runs at the next rest.
func (s *scheduler) start(scope *Scope, place string, fn func(*Coroutine)) *Coroutine {
	c := &Coroutine{s: s, Scope: scope, Place: place, resume: make(chan bool)}
	s.all = append(s.all, c)
	go c.run(fn)
	return c
}

func (c *Coroutine) run(fn func(*Coroutine)) {
	defer func() { c.s.rested <- struct{}{} }() // runs last, and also after Goexit
	defer func() { c.ended = true }()
	if !<-c.resume {
		return
	}
	c.goroutine.Store(goroutineID())
	defer func() {
		if v := recover(); v != nil && c.s.panic == nil {
			c.s.panic = &Panic{v, debug.Stack()}
		}
	}()
	fn(c)
}

// rest runs all coroutines, in the order of their creation, until none of them can continue. It stops at a panic.
func (s *scheduler) rest() {
	for moved := true; moved && s.panic == nil; {
		moved = false
		for i := 0; i < len(s.all) && s.panic == nil; i++ { // running coroutines may append more
			if c := s.all[i]; c.ready() {
				s.pass(c, true)
				moved = true
			}
		}
		s.all = slices.DeleteFunc(s.all, func(c *Coroutine) bool { return c.ended })
	}
}

func (c *Coroutine) ready() bool { return !c.ended && (c.until == nil || c.until()) }

// pass lets the coroutine run until it rests or ends.
func (s *scheduler) pass(c *Coroutine, on bool) {
	if s.slow != nil && on {
		defer time.AfterFunc(slowTurn, func() { s.slow(c.Place, stackOf(c.goroutine.Load())) }).Stop()
	}
	s.current = c
	c.resume <- on
	<-s.rested
	s.current = nil
}

// slowTurn is how long a coroutine may run without resting before that is reported.
const slowTurn = time.Second

// end ends all coroutines, the youngest first, one at a time. Their deferred functions run, but can do nothing more
// with the workflow.
func (s *scheduler) end() {
	s.ending = true
	for _, c := range slices.Backward(s.all) {
		if !c.ended {
			s.pass(c, false)
		}
	}
	s.all = nil
}

// Ending reports whether the coroutine is being ended, because the workflow has to wait for a later invocation.
func (c *Coroutine) Ending() bool { return c.s.ending }

// Await rests until the condition is true. The condition must depend only on what was delivered and on variables of the
// workflow.
func (c *Coroutine) Await(until func() bool) {
	c.Check()
	if until() {
		return
	}
	self := c.self()
	self.until = until
	c.s.rested <- struct{}{}
	if !<-c.resume {
		runtime.Goexit()
	}
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

// Check panics with a [*MisuseError] unless the caller runs as this coroutine. While the coroutine is being ended it
// ends the calling deferred function.
func (c *Coroutine) Check() {
	caller, self := goroutineID(), c.self()
	if place, ok := c.s.inline.Load(caller); ok {
		panic(&MisuseError{Used: Caller(), Started: c.Place, Inner: place.(string), Inline: true})
	}
	if c.s.ending {
		runtime.Goexit()
	}
	switch running := c.s.current; {
	case running == self && caller == self.goroutine.Load():
	case running == self || running == nil:
		panic(&MisuseError{Used: Caller(), Started: c.Place, Foreign: true})
	default:
		panic(&MisuseError{Used: Caller(), Started: c.Place, Inner: running.Place})
	}
}

// goroutineID returns the number of the calling goroutine, which the runtime shows only in stacks.
func goroutineID() uint64 {
	var buffer [64]byte
	line := buffer[:runtime.Stack(buffer[:], false)]
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
