package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	fan     = stepwell.NewWorkflow[int, int]("fan")
	trip    = stepwell.NewWorkflow[string, string]("trip")
	reserve = stepwell.NewStep[string, string]("reserve")
	drive   = stepwell.NewStep[string, string]("drive")
)

// commitCounter counts the requests with which an app writes during calls.
type commitCounter struct{ commits atomic.Int64 }

// RoundTrip implements [http.RoundTripper].
func (c *commitCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/commands") {
		c.commits.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestFinishedStepsAreOnDiskWhileOthersAreInProgress has 500 steps that end together, and one that goes on until the
// results of all others are in the log.
func TestFinishedStepsAreOnDiskWhileOthersAreInProgress(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, "write")
	const quick = 500
	counter, begun, all := &commitCounter{}, atomic.Int64{}, make(chan bool)
	s.serveVia(t, &http.Client{Transport: counter}, fan.Bind(func(w *stepwell.Context, n int) (int, error) {
		ended, err := stepwell.Map(w, make([]int, n+1), func(w *stepwell.Context, _ int) (int, error) {
			return stepwell.Do(w, "step", func(ctx context.Context) (int, error) {
				if !strings.HasPrefix(stepwell.Info(ctx).ID, fmt.Sprint("map.", n, ".")) {
					if begun.Add(1) == quick {
						close(all)
					}
					select {
					case <-all:
						return 1, nil
					case <-ctx.Done():
						return 0, context.Cause(ctx)
					}
				}
				return 1, hasEvents(ctx, fan.Handle(c, stepwell.Info(ctx).Run.ID), "step_completed", n)
			})
		})
		return len(ended), err
	}))
	run, err := fan.Start(t.Context(), c, quick)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run.Wait(t.Context()); err != nil || out != quick+1 {
		t.Errorf("got %d, %v", out, err)
	}
	if n := counter.commits.Load(); n > 100 {
		t.Errorf("%d results took %d commits", quick, n)
	}
}

// TestARunIsAskedToCancelDuringAStep cancels runs, by a request and by their timeout, whose steps end only when they
// are told to. What was done before is undone.
func TestARunIsAskedToCancelDuringAStep(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, "write")
	begun, released := make(chan bool, 1), make(chan string, 1)
	var cause error
	s.serve(t, reserve.Bind(func(_ context.Context, seat string) (string, error) { return seat, nil }),
		drive.Bind(func(ctx context.Context, _ string) (string, error) {
			begun <- true
			<-ctx.Done()
			cause = context.Cause(ctx)
			return "", cause
		}),
		trip.Bind(func(w *stepwell.Context, seat string) (string, error) {
			return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
				if _, err := reserve.Run(w, seat, reserve.Undo(func(w *stepwell.Context, seat string, _ *string) error {
					return stepwell.Exec(w, "release", func(context.Context) error {
						released <- seat
						return nil
					})
				})); err != nil {
					return "", err
				}
				return drive.Run(w, seat)
			})
		}))
	for _, timeout := range []bool{false, true} {
		var options []stepwell.StartOption
		want := "not needed"
		if timeout {
			options, want = []stepwell.StartOption{stepwell.Timeout(time.Second), stepwell.TimeoutGrace(time.Minute)}, "timeout"
		}
		run, err := trip.Start(t.Context(), c, "7a", options...)
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		asked := time.Now()
		if !timeout {
			if err := run.Cancel(t.Context(), want, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		_, err = run.Wait(t.Context())
		took := time.Since(asked)
		t.Logf("%v after %s", err, took)
		if seat := <-released; seat != "7a" || err == nil || !errors.Is(cause, stepwell.ErrStepCancelled) ||
			!strings.Contains(cause.Error(), want) || took > time.Minute {
			t.Errorf("the run has ended with %v after %s; released %q, and the step ended because of %v", err, took, seat, cause)
		}
	}
}
