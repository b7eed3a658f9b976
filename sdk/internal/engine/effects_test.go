package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// parts is a host that dies after the first part of what it is to write.
type parts struct{ r *run }

func (p *parts) Read(context.Context, int64) ([]Event, error) { return nil, errDied }

func (p *parts) Commit(_ context.Context, a Answer, after int64) ([]Event, error) {
	if after > 1 {
		return nil, errDied
	}
	p.r.apply(a)
	return slices.Clone(p.r.log[after:]), nil
}

// TestProcessDiesBetweenPartsOfARest asks at one rest for more than the server takes at once, and last for something
// that leaves no event of its own. It must not be taken for written because the first part is.
func TestProcessDiesBetweenPartsOfARest(t *testing.T) {
	t.Parallel()
	r := newRun()
	code := func(e *Engine) func(*Coroutine) {
		return func(c *Coroutine) {
			for i := range mostCommands + 1 {
				id := fmt.Sprint("step-", i)
				e.Ask(c, &Operation{Kind: KindStep, ID: id, Name: id, Command: runStep{id, id}})
			}
			e.Ask(c, &Operation{Kind: KindAttribute, ID: "last", Command: "last"})
			c.Await(func() bool { return false })
		}
	}
	e := New(slices.Clone(r.log), Config{Host: &parts{r}})
	if _, err := runOnce(t.Context(), e, "test", code(e)); err != errDied { //nolint:errorlint // it is returned as it is
		t.Fatal(err)
	}
	e = New(slices.Clone(r.log), Config{})
	a, err := runOnce(t.Context(), e, "test", code(e))
	if err != nil || len(a.Commands) != 2 || a.Commands[1] != "last" {
		t.Errorf("got %v, %v; want the rest of the commands", a.Commands, err)
	}
}

// writer is a host that writes to a run, and counts its writes.
type writer struct {
	r      *run
	writes int

	commands, most int // in all writes, and in the largest

	before, after func() // each write
}

// Read also lets something happen.
func (w *writer) Read(_ context.Context, after int64) ([]Event, error) {
	w.r.happen(rand.New(rand.NewPCG(1, 1)))
	return slices.Clone(w.r.log[after:]), nil
}

func (w *writer) Commit(_ context.Context, a Answer, after int64) ([]Event, error) {
	if w.before != nil {
		w.before()
	}
	w.writes++
	w.commands, w.most = w.commands+len(a.Commands), max(w.most, len(a.Commands))
	w.r.apply(a)
	if w.after != nil {
		w.after()
	}
	return slices.Clone(w.r.log[after:]), nil
}

// fanOut is a workflow that executes n inline operations at once.
func fanOut(e *Engine, n int, execute func(i int)) func(*Coroutine) {
	return func(c *Coroutine) {
		ops := make([]*Operation, n)
		for i := range n {
			op := &Operation{Kind: KindInline, ID: fmt.Sprint("step-", i), Name: "step", Durable: true}
			op.Execute = func(context.Context) Result {
				execute(i)
				return Result{Output: json.RawMessage("1"), StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0)}
			}
			op.Record = func(r Result, seen Recorded) any { return record{op.ID, op.Name, r, seen} }
			ops[i] = op
			e.Ask(c, op)
		}
		for _, op := range ops {
			c.Await(op.Done)
		}
	}
}

// TestResultsAreWrittenWhileOthersAreInProgress has an operation that goes on until the results of the others are on
// disk.
func TestResultsAreWrittenWhileOthersAreInProgress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const quick = 3
	w := &writer{r: newRun()}
	done := make(chan bool)
	w.after = func() {
		if w.r.ended("step-0") && w.r.ended("step-1") && w.r.ended("step-2") {
			close(done)
		}
	}
	e := New(slices.Clone(w.r.log), Config{Host: w})
	_, err := runOnce(ctx, e, "test", fanOut(e, quick+1, func(i int) {
		if i == quick {
			select {
			case <-done:
			case <-ctx.Done():
			}
		}
	}))
	if err != nil {
		t.Error(err)
	}
}

// TestWhatEndsTogetherIsOneWrite has 500 operations that end while the first of them is written.
func TestWhatEndsTogetherIsOneWrite(t *testing.T) {
	t.Parallel()
	const n = 500
	var ended atomic.Int64
	all := make(chan bool)
	w := &writer{r: newRun(), before: func() { <-all }}
	e := New(slices.Clone(w.r.log), Config{Host: w})
	_, err := runOnce(t.Context(), e, "test", fanOut(e, n, func(int) {
		if ended.Add(1) == n {
			close(all)
		}
	}))
	if err != nil || w.writes > n/5 {
		t.Errorf("%d results in %d writes, %v", n, w.writes, err)
	}
}

// TestLargeCommandsAreWrittenInParts has results that end together, and commands that are asked for at one rest, which
// are more bytes than the server takes at once.
func TestLargeCommandsAreWrittenInParts(t *testing.T) {
	t.Parallel()
	const n, large = 5, 7 << 20
	var ended atomic.Int64
	all := make(chan bool)
	w := &writer{r: newRun()}
	e := New(slices.Clone(w.r.log), Config{Host: w, Size: func(any) int { return large }})
	results := fanOut(e, n, func(int) {
		if ended.Add(1) == n {
			close(all)
		}
		<-all
	})
	a, err := runOnce(t.Context(), e, "test", func(c *Coroutine) {
		results(c)
		for i := range n {
			id := fmt.Sprint("remote-", i)
			e.Ask(c, &Operation{Kind: KindStep, ID: id, Name: id, Command: runStep{id, id}})
		}
		c.Await(func() bool { return false })
	})
	if most := mostBytes / large; err != nil || w.most > most || len(a.Commands) != 0 || w.commands != 2*n {
		t.Errorf("%d commands in the largest of the writes of %d, %d in the answer, %v", w.most, w.commands, len(a.Commands), err)
	}
}

// TestNewsComesWhileAnOperationIsInProgress has an operation that goes on until the workflow ends it, because of
// something that happened meanwhile.
func TestNewsComesWhileAnOperationIsInProgress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, stop := &writer{r: newRun()}, make(chan bool)
	e := New(slices.Clone(w.r.log), Config{Host: w, Listen: time.Millisecond})
	begun := fanOut(e, 1, func(int) {
		select {
		case <-stop:
		case <-ctx.Done():
		}
	})
	_, err := runOnce(ctx, e, "test", func(c *Coroutine) {
		op := &Operation{Kind: KindWait, ID: "wait", Command: wait{"wait"}, Place: "test"}
		e.Ask(c, op)
		c.Go("go", "test", begun)
		c.Await(op.Done)
		close(stop)
	})
	if err != nil {
		t.Error(err)
	}
}
