package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// parts is a host that dies after the first part of what it is to write.
type parts struct{ r *run }

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
