package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// program is a workflow: what its coroutines do, one after the other.
type program []instruction

type instruction struct {
	do      string // inline, step, wait, hook, race, both, spawn, peek
	name    string
	program program // of a spawned coroutine, or of the branch that is taken if the first racer wins
}

// randomProgram returns a program of up to n instructions on each level.
func randomProgram(random *rand.Rand, n, depth int) (p program) {
	kinds := []string{"inline", "inline", "step", "step", "wait", "hook", "peek", "both"}
	if depth > 0 {
		kinds = append(kinds, "spawn", "spawn", "race")
	}
	for range 1 + random.IntN(n) {
		i := instruction{do: kinds[random.IntN(len(kinds))], name: string(rune('a' + random.IntN(3)))}
		if i.do == "spawn" || i.do == "race" {
			i.program = randomProgram(random, n, depth-1)
		}
		p = append(p, i)
	}
	return p
}

// execution is a workflow that executes a program, in one invocation or several. The trace is everything that its code
// has observed, in order.
type execution struct {
	e     *Engine
	r     *run
	trace []string
	each  bool // the results of all inline operations are durable
	// executed counts the executions of inline operations, of all executions of a run.
	executed *atomic.Int64
}

func (x *execution) saw(format string, args ...any) {
	x.trace = append(x.trace, fmt.Sprintf(format, args...))
}

func (x *execution) run(c *Coroutine, p program) {
	for _, i := range p {
		switch i.do {
		case "peek": // reads what others have written so far
			x.saw("%s sees %d at %s", c.Scope.Path(), len(x.trace), x.e.Now().Format(time.TimeOnly))
		case "spawn":
			c.Go(i.name, "test", func(c *Coroutine) { x.run(c, i.program) })
		case "race":
			a, b := x.ask(c, "step", i.name), x.ask(c, "inline", i.name)
			c.Await(func() bool { return a.Done() || b.Done() })
			if a.Done() {
				x.saw("%s: %s won", c.Scope.Path(), a.ID)
				x.run(c, i.program)
			} else {
				x.saw("%s: %s won", c.Scope.Path(), b.ID)
			}
		case "both":
			a, b := x.ask(c, "step", i.name), x.ask(c, "wait", i.name)
			c.AwaitAll([]func() bool{a.Done, b.Done})
			x.saw("%s: %s and %s ended", c.Scope.Path(), a.ID, b.ID)
		default:
			op := x.ask(c, i.do, i.name)
			c.Await(op.Done)
			x.saw("%s: %s is %s", c.Scope.Path(), op.ID, op.Received[0].Payload)
		}
	}
}

func (x *execution) ask(c *Coroutine, kind, name string) *Operation {
	id := c.Scope.ID(kind + "-" + name)
	op := &Operation{ID: id, Name: name, Place: "test"}
	switch kind {
	case "inline":
		op.Kind, op.Durable = KindInline, x.each || name == "a"
		op.Ready = func([]Event) Readiness {
			ready := Readiness{Later: x.r.pausing[id], NextInvocation: name == "b"}
			if x.r.attempt > 1 {
				ready.Mark = retry{id, name, true}
			}
			return ready
		}
		x.inline(op)
	case "step":
		op.Kind, op.Command = KindStep, runStep{id, name}
		if x.r.attempt == 1 && name != "c" {
			op.Durable = x.each
			x.inline(op)
		}
	case "wait":
		op.Kind, op.Command = KindWait, wait{id}
	case "hook":
		op.Kind, op.Command = KindHook, hook{id}
	}
	x.e.Ask(c, op)
	return op
}

// inline makes an operation one that is executed inline. One of four attempts fails.
func (x *execution) inline(op *Operation) {
	op.Execute = func(context.Context) Result {
		n := x.executed.Add(1)
		at := time.Unix(n, 0)
		if n%4 == 0 {
			return Result{Failed: []Attempt{{StartedAt: at, EndedAt: at}}}
		}
		return Result{Output: json.RawMessage(strconv.FormatInt(n, 10)), StartedAt: at, EndedAt: at}
	}
	op.Record = func(r Result, seen Recorded) any { return record{op.ID, op.Name, r, seen} }
	op.Retry = func(Attempt) any { return retry{op.ID, op.Name, op.Kind == KindInline} }
}

// committer is a host that writes to a run, while other things happen to it.
type committer struct {
	r      *run
	random *rand.Rand
	lease  int
	// meanwhile is called before each commit.
	meanwhile func()
	// dieAfter is the number of commits after which the process dies; negative: never.
	dieAfter int
	// committed is called after each commit.
	committed func()
}

var errDied = fmt.Errorf("the process has died")

func (h *committer) Read(_ context.Context, after int64) ([]Event, error) {
	if h.random.IntN(3) == 0 {
		return nil, errDied
	}
	h.r.happen(h.random)
	return slices.Clone(h.r.log[after:]), nil
}

func (h *committer) Commit(_ context.Context, a Answer, after int64) ([]Event, error) {
	if h.dieAfter == 0 {
		return nil, errDied
	}
	h.dieAfter--
	h.meanwhile()
	for range 1 + h.random.IntN(2) { // the answer is lost, and the request is repeated
		if h.random.IntN(2) == 0 {
			h.r.happen(h.random)
		}
		if !h.r.write(h.lease, a, after, fmt.Sprint(after, a)) {
			return nil, ErrStale
		}
		h.committed()
	}
	return slices.Clone(h.r.log[after:]), nil
}

// player plays the run of a program with random faults.
type player struct {
	t       *testing.T
	random  *rand.Rand
	program program
	r       *run
	counter atomic.Int64
	written []string // what was observed by code whose effects are in the log
	kept    *execution
	warm    int
	stale   int
}

// TestReplayIsAFunctionOfTheLog runs random programs with random histories, divided into invocations at random. They
// are cold or warm, and write each result or batches. Calls are copied, and the copies write at the same time. Answers
// get lost, processes die between commits, and things happen during the calls. Attempts of inline operations fail. Some
// invocations hear of things while operations are in progress. Each invocation must observe what the one before has
// observed and written, in the same order, and the run must end, though it is invoked only for what it says that it
// waits for.
func TestReplayIsAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	warm, stale := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := &player{t: t, random: random, program: randomProgram(random, 4, 2), r: newRun()}
		for n := 0; !p.invoke(seed); n++ {
			if n > 400 {
				t.Fatalf("seed %d: the run does not end\nprogram %v\nlog %v", seed, p.program, p.r.log)
			}
			for p.r.happen(random) && (random.IntN(2) == 0 || !p.r.isWanted()) {
			}
			if !p.r.isWanted() {
				t.Fatalf("seed %d: nothing wakes the run\nprogram %v\nawait %v\nlog %v", seed, p.program, p.r.await, p.r.log)
			}
		}
		warm, stale = warm+p.warm, stale+p.stale
	}
	if warm < 1000 {
		t.Errorf("only %d invocations were warm", warm)
	}
	if stale < 400 {
		t.Errorf("only %d copies were overtaken", stale)
	}
}

// invoke invokes the run, and reports whether it has ended.
func (p *player) invoke(seed uint64) bool {
	p.r.fired = false
	p.r.lease++
	lease := p.r.lease
	start := slices.Clone(p.r.log)
	copies := p.random.IntN(3)
	var again func()
	again = func() { // another copy of the call runs, until it dies or ends; its answer is lost
		if copies == 0 || p.random.IntN(2) == 0 {
			return
		}
		copies--
		x := p.cold(start)
		defer x.e.Close()
		_, _, err := p.advance(x, lease, again)
		p.check(seed, x, err)
	}
	x := p.execution()
	again()
	a, done, err := p.advance(x, lease, again)
	p.check(seed, x, err)
	again()
	told := x.e.Last()
	if err != nil || p.random.IntN(3) == 0 { // the answer is lost
		if !errors.Is(err, ErrStale) {
			p.r.attempt++
		}
		if err != nil || p.random.IntN(2) == 0 {
			x.e.Close()
		} else {
			p.keep(x) // what it has in memory is stale now
		}
		return false
	}
	if p.random.IntN(2) == 0 {
		p.r.happen(p.random) // during the call
	}
	if !p.r.acknowledge(lease, a, told) {
		p.stale++
		x.e.Close()
		return false
	}
	p.written = slices.Clone(x.trace)
	if done {
		x.e.Close()
		p.keep(nil)
		return true
	}
	p.keep(x)
	return false
}

// advance advances a copy of the invocation with the lease.
func (p *player) advance(x *execution, lease int, meanwhile func()) (Answer, bool, error) {
	h := &committer{r: p.r, random: p.random, lease: lease, meanwhile: meanwhile, dieAfter: p.random.IntN(4) - 1}
	h.committed = func() { p.written = slices.Clone(x.trace) }
	x.e.Host, x.each = h, p.random.IntN(2) == 0
	x.e.Listen = time.Duration(max(0, p.random.IntN(5)-3)) // mostly never, or whenever an operation is in progress
	if p.random.IntN(3) == 0 {
		x.e.Host = nil
	}
	a, done, err := x.e.Advance(p.t.Context())
	if errors.Is(err, ErrStale) {
		p.stale++
	}
	return a, done, err
}

// keep keeps an execution in memory.
func (p *player) keep(x *execution) {
	if p.kept != nil && p.kept != x {
		p.kept.e.Close()
	}
	if p.kept = x; x != nil && !x.e.CanResume() {
		x.e.Close()
		p.kept = nil
	}
}

// execution returns the execution that the next invocation goes on with: the one in memory, if it can, or a new one.
func (p *player) execution() *execution {
	x := p.kept
	if x == nil || p.random.IntN(3) == 0 {
		return p.cold(slices.Clone(p.r.log))
	}
	p.kept = nil
	if err := x.e.Resume(slices.Clone(p.r.log[x.e.Last():])); err != nil {
		x.e.Close()
		return p.cold(slices.Clone(p.r.log))
	}
	p.warm++
	return x
}

func (p *player) cold(log []Event) *execution {
	x := &execution{e: New(log, Config{}), r: p.r, executed: &p.counter}
	x.e.Begin("test", func(c *Coroutine) { x.run(c, p.program) })
	return x
}

// check checks that an execution has observed what is in the log. One that was overtaken may have observed something
// else, which nobody will know.
func (p *player) check(seed uint64, x *execution, err error) {
	p.t.Helper()
	if errors.Is(err, ErrStale) || p.r.written > x.e.Last() {
		return
	}
	if err != nil && !errors.Is(err, errDied) {
		p.t.Fatalf("seed %d: %v\nprogram %v\nlog %v", seed, err, p.program, p.r.log)
	}
	if short := min(len(p.written), len(x.trace)); !slices.Equal(p.written[:short], x.trace[:short]) ||
		err == nil && len(x.trace) < len(p.written) {
		p.t.Fatalf("seed %d observed\n%q\nafter\n%q\nlog %v", seed, x.trace, p.written, p.r.log)
	}
}
