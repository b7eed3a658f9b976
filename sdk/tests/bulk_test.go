package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

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
	got, err := stepwell.WaitAll(ctx, runs)
	if details, ok := closed.Find(err); !ok || details != 7 || len(got) != len(inputs) {
		t.Errorf("the error is %v", err)
	}
	for i, n := range got {
		if n != inputs[i] && inputs[i] != 7 {
			t.Errorf("output %d is %d, want %d", i, n, inputs[i])
		}
	}
	nowhere, err := gate.StartAll(ctx, c, inputs, func(int) []stepwell.StartOption {
		return []stepwell.StartOption{stepwell.Deployment("nowhere")}
	})
	if !stepwell.HasCode(err, "deployment_not_found") || nowhere[0] != nil {
		t.Errorf("at a deployment that is not there: %v, %v", nowhere[0], err)
	}
}
