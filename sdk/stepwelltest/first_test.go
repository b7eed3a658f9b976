package stepwelltest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// TestAsCompletedYieldsInTheOrderOfTheLog also cancels the run while some are in progress.
func TestAsCompletedYieldsInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	var came []string
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		came = nil
		var all []*stepwell.Future[string]
		for i, minutes := range []int{3, 1, 100, 2, 200} {
			name := string(rune('a' + i))
			all = append(all, stepwell.Go(w, name, func(w *stepwell.Context) (string, error) {
				return name, w.Sleep(time.Duration(minutes) * time.Minute)
			}))
		}
		for i, f := range stepwell.AsCompleted(w, all...) {
			if name, err := f.Await(w); all[i] != f || err != nil && !errors.Is(err, stepwell.ErrCancelled) {
				return "", errors.New("it is another one")
			} else if came = append(came, name); err != nil {
				came[len(came)-1] += " cancelled"
			}
		}
		return "", w.Detached().Sleep(time.Second)
	})
	env.Advance(10 * time.Minute)
	env.Cancel(run.ID(), "enough", time.Hour)
	env.RunUntilDone()
	if _, err := run.Result(); strings.Join(came, ", ") != "b, d, a, c cancelled, e cancelled" {
		t.Errorf("got %q, %v", came, err)
	}
}

// TestAWorkflowThatBlocksEndsItsTest waits for a goroutine that has used the handle.
func TestAWorkflowThatBlocksEndsItsTest(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		got := make(chan string)
		go func() {
			out, _ := echo.Run(w, "x")
			got <- out
		}()
		return <-got, nil
	})
	if !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), "misuse") {
		t.Errorf("got %v", err)
	}
}
