package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// TestManyRunsAreStartedAndWaitedFor: more runs than are waited for at the same time, which end one after the other.
func TestManyRunsAreStartedAndWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	open, closed := stepwell.NewHook[bool]("gate"), stepwell.NewErrorKind[int]("closed")
	gate := stepwell.NewWorkflow[int, int]("gate")
	s.serve(t, gate.Bind(func(w *stepwell.Context, n int) (int, error) {
		opened, err := open.Open(w, stepwell.Token(fmt.Sprint("gate-", n))).Receive(w)
		if err == nil && !opened {
			err = closed.New(n)
		}
		return n, err
	}))
	c, ctx := s.client(t, "write"), t.Context()
	inputs := rand.Perm(68)
	start := func() []*stepwell.Run[int] {
		t.Helper()
		runs, err := gate.StartAll(ctx, c, inputs, func(i int) []stepwell.StartOption {
			return []stepwell.StartOption{stepwell.Once(fmt.Sprint(inputs[i]))}
		})
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	runs, ended := start(), 0
	for i, again := range start() {
		if again.ID() != runs[i].ID() {
			t.Errorf("run %d is %s, and when it is repeated %s", i, runs[i].ID(), again.ID())
		}
	}
	resume := func() {
		awaitEvents(t, runs[ended], "hook_created", 1)
		err := open.Resume(ctx, c, fmt.Sprint("gate-", inputs[ended]), inputs[ended] != 7)
		if err != nil {
			t.Fatal(err)
		}
	}
	resume()
	for end, err := range stepwell.Ends(ctx, append(runs, nil)) {
		details, failed := closed.Find(err)
		switch n := inputs[ended]; {
		case end.Index != ended || end.Run != runs[ended]:
			t.Fatalf("run %d ended, want %d", end.Index, ended)
		case n == 7 && (!failed || details != 7), n != 7 && (err != nil || end.Output != n):
			t.Errorf("run %d ended with %d, %v", n, end.Output, err)
		}
		if ended++; ended == len(runs)-1 {
			break // while one is waited for
		}
		resume()
	}
	if ended != len(runs)-1 {
		t.Fatalf("%d runs have ended", ended)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for end, err := range stepwell.Ends(cancelled, runs[ended:]) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %d, %v", end.Output, err)
		}
		ended++
	}
	if ended != len(runs) {
		t.Error("a run that is left has no error")
	}
	ended--
	resume()
	wantGates(t, runs, inputs, closed)
	nowhere, err := gate.StartAll(ctx, c, inputs, func(int) []stepwell.StartOption {
		return []stepwell.StartOption{stepwell.Deployment("nowhere")}
	})
	if !stepwell.HasCode(err, "deployment_not_found") || nowhere[0] != nil {
		t.Errorf("at a deployment that is not there: %v, %v", nowhere[0], err)
	}
}

// wantGates waits for all runs together: that with the input 7 has failed, and the others have their inputs as outputs.
func wantGates(t *testing.T, runs []*stepwell.Run[int], inputs []int, closed *stepwell.ErrorKind[int]) {
	t.Helper()
	got, err := stepwell.WaitAll(t.Context(), runs)
	if details, ok := closed.Find(err); !ok || details != 7 || len(got) != len(inputs) {
		t.Errorf("the error is %v", err)
	}
	for i, n := range got {
		if n != inputs[i] && inputs[i] != 7 {
			t.Errorf("output %d is %d, want %d", i, n, inputs[i])
		}
	}
}

// TestAllMatchingRunsAreCancelled, and no others: more than one request changes, and than a result names.
func TestAllMatchingRunsAreCancelled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nap := stepwell.NewWorkflow[int, int]("nap")
	s.serve(t, nap.Bind(func(w *stepwell.Context, n int) (int, error) { return n, w.Sleep(time.Hour) }))
	c, ctx := s.client(t, "write"), t.Context()
	runs, err := nap.StartAll(ctx, c, make([]int, 104), func(i int) []stepwell.StartOption {
		return []stepwell.StartOption{stepwell.Attribute("side", []string{"left", "right"}[min(i/101, 1)])}
	})
	if err != nil {
		t.Fatal(err)
	}
	left := stepwell.RunFilter{Workflow: nap.Name(), Attributes: map[string]string{"side": "left"}}
	all, err := c.CancelAll(ctx, left, stepwell.CancelAllOptions{DryRun: true})
	if err != nil || all.Matched != 101 || all.Done != 0 || all.More {
		t.Errorf("a dry run: %+v, %v", all, err)
	}
	all, err = c.CancelAll(ctx, left, stepwell.CancelAllOptions{Reason: "too many naps"})
	if err != nil || all.Matched != 101 || all.Done != 101 || len(all.RunIDs) != 100 || all.More {
		t.Errorf("got %+v, %v", all, err)
	}
	for i, run := range runs {
		details, err := run.Details(ctx)
		if cancelled := details.Status == stepwell.StatusCancelled; err != nil || cancelled != (i < 101) ||
			cancelled && details.CancelReason != "too many naps" {
			t.Errorf("run %d is %+v, %v", i, details, err)
		}
	}
	if all, err := c.CancelAll(ctx, stepwell.RunFilter{}, stepwell.CancelAllOptions{}); err == nil {
		t.Errorf("without a condition: %+v", all)
	}
	batch := stepwell.ForkAllOptions{DryRun: true}
	left.Status = stepwell.StatusCancelled
	if all, err := c.ForkAll(ctx, left, batch); err != nil || all.Matched != 101 || all.Done != 0 || all.More {
		t.Errorf("a dry run of forks: %+v, %v", all, err)
	}
}
