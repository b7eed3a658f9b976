package engine

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// orderLog is the log of the steps reserve and charge, one after the other, and then a wait.
func orderLog() []Event {
	log := []Event{
		{Type: "run_created"},
		{Type: "step_created", ID: "reserve", Payload: json.RawMessage(`{"sku":"tea","count":1}`), Data: Data{
			StepName: "reserve", Place: "order.go:38",
		}},
		{Type: "step_completed", ID: "reserve"},
		{Type: "step_created", ID: "charge", Payload: json.RawMessage(`{"cents":2500}`), Data: Data{
			StepName: "charge", Place: "order.go:41",
		}},
		{Type: "step_completed", ID: "charge"},
		{Type: "wait_created", ID: "wait", Data: Data{Place: "order.go:44"}},
	}
	for i := range log {
		log[i].Seq, log[i].At = int64(i)+1, time.Unix(int64(i), 0)
	}
	return log
}

// asks waits for an operation.
func asks(e *Engine, c *Coroutine, kind Kind, id, name, place, input string) {
	op := &Operation{Kind: kind, ID: id, Name: name, Place: place, Command: id}
	if input != "" {
		op.Input = json.RawMessage(input)
	}
	e.Ask(c, op)
	c.Await(op.Done)
}

// TestWhatADivergenceSays compares texts with testdata/divergence.txt.
func TestWhatADivergenceSays(t *testing.T) {
	t.Parallel()
	const tea, cents = `{"count":1,"sku":"tea"}`, `{"cents":2500}` // the order of fields makes no difference
	var got strings.Builder
	for _, test := range []struct {
		name string
		code func(*Engine, *Coroutine)
	}{
		{"inserted on a line of its own", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", tea)
			asks(e, c, KindStep, "fraud-check", "fraud-check", "order.go:41", "")
		}},
		{"in the order of a map", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "item-2", "reserve", "order.go:38", tea)
		}},
		{"inserted", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", tea)
			asks(e, c, KindStep, "fraud-check", "fraud-check", "order.go:40", "")
		}},
		{"removed", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", tea)
			asks(e, c, KindStep, "charge", "charge", "order.go:41", cents)
		}},
		{"renamed", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", tea)
			asks(e, c, KindStep, "pay", "pay", "order.go:41", cents)
		}},
		{"reordered", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "charge", "charge", "order.go:37", cents)
			asks(e, c, KindStep, "reserve", "reserve", "order.go:41", tea)
		}},
		{"another kind", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", tea)
			asks(e, c, KindWait, "charge", "", "order.go:40", "")
		}},
		{"another name", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "hold", "order.go:38", tea)
		}},
		{"another input", func(e *Engine, c *Coroutine) {
			asks(e, c, KindStep, "reserve", "reserve", "order.go:38", `{"sku":"tea","count":2,"note":"`+strings.Repeat("x", 99)+`"}`)
		}},
	} {
		e := New(orderLog(), Config{Strict: true})
		a, err := runOnce(t.Context(), e, "order.go:30", func(c *Coroutine) { test.code(e, c) })
		d := (*Divergence)(nil)
		if !errors.As(err, &d) || len(a.Commands) > 0 {
			t.Errorf("%s: got %v, %v", test.name, a, err)
			continue
		}
		d.Run, d.Deployment = "wrun_1", "orders@9ac1d07"
		d.Registered = func(string) bool { return test.name != "renamed" }
		fmt.Fprintf(&got, "== %s\n%s\n\n", test.name, d)
	}
	const golden = "testdata/divergence.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v, got\n%s", err, got.String())
	}
}

// TestOtherInputsAreOnlyReported runs a changed workflow outside of tests.
func TestOtherInputsAreOnlyReported(t *testing.T) {
	t.Parallel()
	var reported []string
	e := New(orderLog()[:2], Config{Differs: func(op *Operation, _ Event) { reported = append(reported, op.ID) }})
	_, err := runOnce(t.Context(), e, "test", func(c *Coroutine) {
		asks(e, c, KindStep, "reserve", "reserve", "order.go:38", `{"sku":"pot"}`)
	})
	if err != nil || fmt.Sprint(reported) != "[reserve]" {
		t.Errorf("got %v, reported %v", err, reported)
	}
}

// TestAwaitNamesWhatIsWaitedFor checks what an invocation says that it waits for.
func TestAwaitNamesWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	e := New(nil, Config{})
	a, err := runOnce(t.Context(), e, "test", func(c *Coroutine) {
		step := func(id string) *Operation {
			op := &Operation{Kind: KindStep, ID: id, Command: id}
			e.Ask(c, op)
			return op
		}
		b, d, x, y, hook := step("b"), step("d"), step("x"), step("y"), &Operation{Kind: KindHook, ID: "h", Command: "h"}
		e.Ask(c, hook)
		step("nobody waits for it")
		c.Go("any", "test", func(c *Coroutine) { c.Await(func() bool { return b.Done() || hook.Done() || d.Done() }) })
		c.Go("all", "test", func(c *Coroutine) { c.AwaitAll([]func() bool{x.Done, y.Done}) })
		c.Await(func() bool { return false })
	})
	if err != nil || a.Await == nil || fmt.Sprint(*a.Await) != "{[step:b step:d] [[step:x step:y]]}" {
		t.Errorf("got %v, %v", a.Await, err)
	}
}
