package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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
)

// run is a run with a log, and what a server does with it.
type run struct {
	log  []Event
	open []key // steps, waits and hooks that may get a result
}

func newRun() *run {
	r := &run{}
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
	for i, command := range a.Commands {
		var open []string
		if i == 0 {
			open = a.Open
		}
		switch c := command.(type) {
		case runStep:
			r.create("step", Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name, Open: open}})
		case wait:
			r.create("wait", Event{Type: "wait_created", ID: c.id, Data: Data{Open: open}})
		case hook:
			r.create("hook", Event{Type: "hook_created", ID: c.id, Data: Data{Open: open}})
		case record:
			if !r.has("step_created", c.id) {
				r.append(Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name, Open: open}})
				r.append(Event{Type: "step_completed", ID: c.id, Payload: c.result.Output, Data: Data{Recorded: &c.recorded}})
			}
		default:
			panic(fmt.Sprintf("unknown command %T", c))
		}
	}
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
	do      string // inline, step, wait, hook, race, spawn, peek
	name    string
	program program // of a spawned coroutine, or of the branch that is taken if the first racer wins
}

// randomProgram returns a program of up to n instructions on each level.
func randomProgram(random *rand.Rand, n, depth int) (p program) {
	kinds := []string{"inline", "inline", "step", "wait", "hook", "peek"}
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

// execution is one invocation of a program. The trace is everything that its code has observed, in order.
type execution struct {
	e     *Engine
	trace []string
	tick  func() // called when an inline operation executes
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
			c.Await(func() bool { return len(a.Received)+len(b.Received) > 0 })
			if len(a.Received) > 0 {
				x.saw("%s: %s won", c.Scope.Path(), a.ID)
				x.run(c, i.program)
			} else {
				x.saw("%s: %s won", c.Scope.Path(), b.ID)
			}
		default:
			op := x.ask(c, i.do, i.name)
			c.Await(func() bool { return len(op.Received) > 0 })
			x.saw("%s: %s is %s", c.Scope.Path(), op.ID, op.Received[0].Payload)
		}
	}
}

func (x *execution) ask(c *Coroutine, kind, name string) *Operation {
	id := c.Scope.ID(kind + "-" + name)
	op := &Operation{ID: id, Name: name, Place: "test"}
	switch kind {
	case "inline":
		op.Kind = KindInline
		op.Execute = func(context.Context) Result {
			x.tick()
			return Result{Output: json.RawMessage(strconv.Quote(id))}
		}
		op.Record = func(r Result, seen Recorded) any { return record{id, name, r, seen} }
	case "step":
		op.Kind, op.Command = KindStep, runStep{id, name}
	case "wait":
		op.Kind, op.Command = KindWait, wait{id}
	case "hook":
		op.Kind, op.Command = KindHook, hook{id}
	}
	x.e.Ask(c, op)
	return op
}

// committer is a host that writes to a run, while other things happen to it.
type committer struct {
	r      *run
	random *rand.Rand
	// dieAfter is the number of commits after which the process dies; negative: never.
	dieAfter int
}

var errDied = fmt.Errorf("the process has died")

func (h *committer) Commit(_ context.Context, a Answer, after int64) ([]Event, error) {
	if h.dieAfter == 0 {
		return nil, errDied
	}
	h.dieAfter--
	if h.random.IntN(2) == 0 {
		h.r.happen(h.random)
	}
	h.r.apply(a)
	return slices.Clone(h.r.log[after:]), nil
}

// TestReplayIsAFunctionOfTheLog runs random programs with random histories, divided into invocations at random. Calls
// are doubled, answers get lost, processes die between commits, and things happen during the calls. Each invocation must
// observe what the one before has observed and written, in the same order, and the run must end.
func TestReplayIsAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := randomProgram(random, 4, 2)
		r := newRun()
		var written []string // observed by an invocation whose answer is in the log
		for n := 0; ; n++ {
			if n > 300 {
				t.Fatalf("seed %d: the run does not end", seed)
			}
			h := &committer{r: r, random: random, dieAfter: random.IntN(4) - 1}
			var host Host = h
			if random.IntN(2) == 0 {
				host = nil
			}
			x := &execution{e: New(slices.Clone(r.log), host), tick: func() {}}
			a, done, err := x.e.Run(t.Context(), "test", func(c *Coroutine) { x.run(c, p) })
			if err != nil && err != errDied { //nolint:errorlint // it is returned as it is
				t.Fatalf("seed %d, invocation %d: %v\nprogram %v\nlog %v", seed, n, err, p, r.log)
			}
			if short := min(len(written), len(x.trace)); !slices.Equal(written[:short], x.trace[:short]) ||
				err == nil && len(x.trace) < len(written) {
				t.Fatalf("seed %d, invocation %d observed\n%q\nafter\n%q\nlog %v", seed, n, x.trace, written, r.log)
			}
			if err == nil && random.IntN(3) > 0 { // otherwise the answer is lost
				if random.IntN(2) == 0 {
					r.happen(random) // during the call
				}
				r.apply(a)
				written = x.trace
				if done {
					break
				}
			}
			r.happen(random)
		}
	}
}
