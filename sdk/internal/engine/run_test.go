package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The commands of the tests.
type (
	runStep struct{ id, name string }
	wait    struct{ id string }
	hook    struct{ id string }
	record  struct {
		id, name string
		result   Result
		recorded Recorded
	}
	// retry records a failed attempt. If it is inline, a later invocation makes the next one, otherwise the server.
	retry struct {
		id, name string
		inline   bool
	}
)

// run is a run with a log, and what a server does with it.
type run struct {
	log  []Event
	open []key // steps, waits and hooks that may get a result, and inline operations that are tried again later

	// told is the position up to which the last acknowledged invocation knew the log, and await what it waits for.
	told    int64
	await   *Await
	fired   bool            // the time of a failed inline operation has come since
	pausing map[string]bool // failed inline operations whose time has not come
	attempt int

	// lease is the number of the invocation under way. Written is how long the log was when a copy of it last wrote, and
	// request is what wrote then.
	lease   int
	written int64
	request string
}

// write writes what a copy of an invocation has done, which knows the log up to a position. It reports false if the
// invocation is over, or another copy has written something that this one does not know.
func (r *run) write(lease int, a Answer, knows int64, request string) bool {
	if lease != r.lease || r.written > knows && (request == "" || request != r.request) {
		return false
	}
	r.apply(a)
	r.written, r.request = int64(len(r.log)), request
	return true
}

func newRun() *run {
	r := &run{pausing: map[string]bool{}, attempt: 1, fired: true}
	r.append(Event{Type: "run_created"})
	return r
}

func (r *run) append(e Event) Event {
	e.Seq = int64(len(r.log)) + 1
	e.At = time.Unix(e.Seq, 0)
	r.log = append(r.log, e)
	return e
}

// apply writes an answer. Commands of existing operations change nothing.
func (r *run) apply(a Answer) {
	before := len(r.log)
	for _, command := range a.Commands {
		switch c := command.(type) {
		case runStep:
			r.create("step", Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
		case wait:
			r.create("wait", Event{Type: "wait_created", ID: c.id})
		case hook:
			r.create("hook", Event{Type: "hook_created", ID: c.id})
		case record:
			r.record(c)
		case retry:
			r.retry(c)
		default:
			panic(fmt.Sprintf("unknown command %T", c))
		}
	}
	if len(r.log) > before {
		r.log[before].Data.Open = a.Open
	}
}

func (r *run) record(c record) {
	if r.ended(c.id) {
		return
	}
	if !r.has("step_created", c.id) {
		r.append(Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	}
	delete(r.pausing, c.id)
	r.open = slices.DeleteFunc(r.open, func(k key) bool { return k == key{"retry", c.id} })
	r.append(Event{Type: "step_completed", ID: c.id, Payload: c.result.Output, Data: Data{Recorded: c.recorded}})
}

func (r *run) retry(c retry) {
	if r.ended(c.id) || !c.inline && r.has("step_created", c.id) {
		return
	}
	if !c.inline {
		r.create("step", Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	} else if !r.has("step_created", c.id) {
		r.append(Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	}
	r.append(Event{Type: "step_retrying", ID: c.id})
	if c.inline && !slices.Contains(r.open, key{"retry", c.id}) {
		r.pausing[c.id] = true
		r.open = append(r.open, key{"retry", c.id})
	}
}

func (r *run) ended(step string) bool { return r.has("step_completed", step) }

// acknowledge ends an invocation that knew the log up to a position, unless another copy has overtaken it.
func (r *run) acknowledge(lease int, a Answer, told int64) bool {
	if !r.write(lease, a, told, "") {
		return false
	}
	r.told, r.await, r.attempt = told, a.Await, 1
	return true
}

// isWanted reports whether the server invokes the run.
func (r *run) isWanted() bool {
	if r.fired || r.attempt > 1 {
		return true
	}
	ended := func(ref string) bool {
		space, id, _ := strings.Cut(ref, ":")
		return !slices.Contains(r.open, key{space, id})
	}
	if r.await != nil && (slices.ContainsFunc(r.await.Any, ended) ||
		slices.ContainsFunc(r.await.All, func(all []string) bool {
			return !slices.ContainsFunc(all, func(ref string) bool { return !ended(ref) })
		})) {
		return true
	}
	return slices.ContainsFunc(r.log[r.told:], func(e Event) bool {
		_, news := results[e.Type]
		return e.Type == "hook_received" || news && r.await == nil
	})
}

func (r *run) create(space string, e Event) {
	if !r.has(e.Type, e.ID) {
		r.append(e)
		r.open = append(r.open, key{space, e.ID})
	}
}

func (r *run) has(eventType, id string) bool {
	return slices.ContainsFunc(r.log, func(e Event) bool { return e.Type == eventType && e.ID == id })
}

// happen appends the result of a random open operation, if there is one. Hooks stay open for two payloads.
func (r *run) happen(random *rand.Rand) bool {
	if len(r.open) == 0 {
		return false
	}
	i := random.IntN(len(r.open))
	k := r.open[i]
	if k.space == "retry" {
		r.open = slices.Delete(r.open, i, i+1)
		delete(r.pausing, k.id)
		r.fired = true
		return true
	}
	e := Event{ID: k.id, Payload: json.RawMessage(strconv.Itoa(random.IntN(100)))}
	e.Type = map[string]string{"step": "step_completed", "wait": "wait_completed", "hook": "hook_received"}[k.space]
	r.append(e)
	if k.space != "hook" || r.count("hook_received", k.id) >= 2 {
		r.open = slices.Delete(r.open, i, i+1)
	}
	return true
}

func (r *run) count(eventType, id string) (n int) {
	for _, e := range r.log {
		if e.Type == eventType && e.ID == id {
			n++
		}
	}
	return n
}

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

// execution is a workflow that executes a program, in one invocation or several. The trace is everything that its code has
// observed, in order.
type execution struct {
	e     *Engine
	r     *run
	trace []string
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
		op.Kind, op.Durable = KindInline, name == "a"
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

// TestReplayIsAFunctionOfTheLog runs random programs with random histories, divided into invocations at random. They are
// cold or warm, and write each result or batches. Calls are copied, and the copies write at the same time. Answers get
// lost, processes die between commits, and things happen during the calls. Attempts of inline operations fail. Each invocation must observe what the one
// before has observed and written, in the same order, and the run must end, though it is invoked only for what it says
// that it waits for.
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
	x.e.Host, x.e.Batch = h, p.random.IntN(2) == 0
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
