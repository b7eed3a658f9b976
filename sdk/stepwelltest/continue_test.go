package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// account is what a run of the ledger hands to the next one.
type account struct {
	Runs int
	Sums []int
}

var (
	deposits = stepwell.NewInbox[int]("deposits")
	funds    = stepwell.NewStoreKey[int]("balance")
	ledger   = stepwell.NewWorkflow[account, account]("ledger", stepwell.WithInbox(deposits))
	audit    = stepwell.NewWorkflow[int, string]("audit")
)

// keepLedger receives three deposits in each run, until one is 0.
func keepLedger(w *stepwell.Context, in account) (account, error) {
	if kept, _ := w.Attribute("kept"); in.Runs > 0 && kept != fmt.Sprint(in.Runs) {
		return in, errors.New("the attribute is lost")
	}
	in.Runs++
	w.SetAttribute("kept", fmt.Sprint(in.Runs))
	for range 3 {
		d, err := deposits.Receive(w)
		if err != nil || d == 0 {
			return in, err
		}
		funds.Update(w, func(n int) int { return n + d })
		sum, err := stepwell.Do(w, "sum", func(ctx context.Context) (int, error) {
			n, _ := funds.Get(stepwell.Store(ctx))
			return n, nil
		})
		if err != nil {
			return in, err
		}
		in.Sums = append(in.Sums, sum)
	}
	return ledger.ContinueAs(w, in)
}

// TestContinuedRunGoesOn: store, attributes and unread messages are those of the run before, and a message counts once,
// whichever run has it, also if each process dies once.
func TestContinuedRunGoesOn(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(tb testing.TB, e *stepwelltest.Env) {
		e.Register(ledger.Bind(keepLedger))
		run := stepwelltest.Start(e, ledger, account{})
		for i := range 7 {
			for range 2 {
				stepwelltest.Send(e, deposits, run.ID(), i+1, fmt.Sprint(i))
			}
		}
		e.RunUntilIdle()
		stepwelltest.Send(e, deposits, run.ID(), 1, "0")
		stepwelltest.Send(e, deposits, run.ID(), 0, "end")
		e.RunUntilDone()
		got, err := run.Result()
		if want := "{3 [1 3 6 10 15 21 28]}"; err != nil || fmt.Sprint(got) != want {
			tb.Errorf("got %v, error %v, want %s", got, err, want)
		}
		last := run.Continued()
		if n, _ := stepwelltest.Stored(e, funds, last.ID()); n != 28 || last.ID() == run.ID() {
			tb.Errorf("the last run is %s, and its balance %d", last.ID(), n)
		}
		app := stepwell.NewApp(stepwell.AppConfig{Name: "ledger"})
		app.Register(ledger.Bind(keepLedger))
		for _, r := range []*stepwelltest.Run[account]{run, last} {
			if err := app.Replay(tb.Context(), r.Log()); err != nil {
				tb.Errorf("replay of run %s: %v", r.ID(), err)
			}
		}
	})
}

// TestParentWaitsForTheLastRun, and a request to cancel the child reaches that.
func TestParentWaitsForTheLastRun(t *testing.T) {
	t.Parallel()
	loop := stepwell.NewWorkflow[int, int]("loop")
	e := stepwelltest.New(t, loop.Bind(func(w *stepwell.Context, n int) (int, error) {
		switch n {
		case 3:
			return 42, nil
		case 13:
			return n, w.Sleep(1e15)
		}
		return loop.ContinueAs(w, n+1)
	}), audit.Bind(func(w *stepwell.Context, n int) (string, error) {
		ends, waits := loop.Child(w, 1), loop.Child(w, 11)
		got, err := ends.Await(w)
		waits.Cancel(w, "enough")
		_, cancelled := waits.Await(w)
		return fmt.Sprint(got, err, errors.Is(cancelled, stepwell.ErrCancelled)), nil
	}))
	run := stepwelltest.Start(e, audit, 0)
	e.RunUntilDone()
	if got, err := run.Result(); got != "42 <nil> true" || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
}

// TestCodeThatNoLongerContinuesDiverges from the log of a run that has.
func TestCodeThatNoLongerContinuesDiverges(t *testing.T) {
	t.Parallel()
	loop := stepwell.NewWorkflow[int, int]("loop")
	e := stepwelltest.New(t, loop.Bind(func(w *stepwell.Context, n int) (int, error) {
		if n == 0 {
			return loop.ContinueAs(w, 1)
		}
		return n, nil
	}))
	run := stepwelltest.Start(e, loop, 0)
	e.RunUntilDone()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "loop"})
	app.Register(loop.Bind(func(_ *stepwell.Context, n int) (int, error) { return n, nil }))
	if err := app.Replay(t.Context(), run.Log()); err == nil || !stepwell.HasCode(err, "diverged") {
		t.Errorf("got %v", err)
	}
}

// TestLongRunsShouldContinue: messages that wait do not count.
func TestLongRunsShouldContinue(t *testing.T) {
	t.Parallel()
	flood := stepwell.NewWorkflow[int, string]("flood", stepwell.WithInbox(deposits))
	e := stepwelltest.New(t, flood.Bind(func(w *stepwell.Context, from int) (string, error) {
		n := from
		for ; !w.ShouldContinue(); n++ {
			if d, err := deposits.Receive(w); err != nil || d < 0 {
				return fmt.Sprintf("%d after %d, length %d", n, from, w.LogLength()), err
			}
		}
		return flood.ContinueAs(w, n)
	}))
	run := stepwelltest.Start(e, flood, 0)
	for range 2500 {
		stepwelltest.Send(e, deposits, run.ID(), 1, "")
	}
	stepwelltest.Send(e, deposits, run.ID(), -1, "")
	e.RunUntilDone()
	if got, err := run.Result(); got != "2500 after 2000, length 501" || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
}
