package stepwelltest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// TestGroundControl checks what went wrong in another engine, which these workflows come from.
func TestGroundControl(t *testing.T) {
	t.Parallel()
	t.Run("G1: what a workflow does first is replayed", groundControl1)
	t.Run("G2: a timer that is late is harmless", groundControl2)
	t.Run("G3: what follows a result happens once", groundControl3)
	t.Run("G4: what is stored last is kept", groundControl4)
	t.Run("G5: a message that nobody understands does not hang the run", groundControl5)
	t.Run("G6: the time of a run is limited", groundControl6)
	t.Run("G7: a run can be cancelled right after its start", groundControl7)
	t.Run("G8: each end of a child decodes", groundControl8)
}

// declare returns a workflow with its definition.
func declare(fn func(w *stepwell.Context) (string, error)) (*stepwell.Workflow[stepwell.None, string], stepwell.Definition) {
	workflow := stepwell.NewWorkflow[stepwell.None, string]("test", stepwell.WithInbox(notes))
	return workflow, workflow.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return fn(w) })
}

func groundControl1(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		workflow, definition := declare(func(w *stepwell.Context) (string, error) {
			first, err := stepwell.Do(w, "first", func(context.Context) (string, error) { return "first", nil })
			if err != nil {
				return "", err
			}
			second, err := echo.Run(w, first+" second")
			return second, err
		})
		env.Register(definition, echo.Bind(execute))
		run := stepwelltest.Start(env, workflow, stepwell.None{})
		env.RunUntilDone()
		if got, err := run.Result(); got != "first second" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func groundControl2(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		if _, err := stepwell.Select(w, on(echo.Go(w, "fast"), ""), on(w.Timer(time.Hour), "").Keep()); err != nil {
			return "", err
		}
		return stepwell.NewHook[string]("end").Open(w, stepwell.Token("end")).Receive(w)
	})
	env.Advance(2 * time.Hour)
	env.Resume("end", "fine")
	env.RunUntilDone()
	if got, err := run.Result(); got != "fine" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func groundControl3(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		workflow, definition := declare(func(w *stepwell.Context) (string, error) {
			got, err := echo.Run(w, "result")
			if err != nil {
				return "", err
			}
			return echo.Run(w, got+" dispatched")
		})
		env.Register(definition, echo.Bind(execute))
		run := stepwelltest.Start(env, workflow, stepwell.None{})
		env.RunUntilDone()
		if n := strings.Count(strings.Join(logged(run), ","), "step_created"); n != 2 {
			t.Errorf("%d steps were dispatched, want 2", n)
		}
	})
}

func groundControl4(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"completed": nil, "failed": stepwell.Fail("no", "it failed")} {
		env, run := start(t, func(w *stepwell.Context) (string, error) {
			balance.Set(w, 7)
			return "", end
		})
		env.RunUntilDone()
		if n, ok := stepwelltest.Stored(env, balance, run.ID()); n != 7 || !ok || env.Status(run.ID()) != name {
			t.Errorf("%s: the store has %d, %v; the run is %s", name, n, ok, env.Status(run.ID()))
		}
	}
}

func groundControl5(t *testing.T) {
	t.Parallel()
	env, run := withNotes(t, func(w *stepwell.Context) (string, error) { return notes.Receive(w) })
	env.RunUntilIdle()
	stepwelltest.Send(env, stepwell.NewInbox[[]int]("notes"), run.ID(), []int{1, 2}, "")
	env.RunUntilDone()
	if _, err := run.Result(); !stepwell.HasCode(err, "undecodable") {
		t.Errorf("got %v", err)
	}
}

func groundControl6(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) { return "", w.Sleep(365 * 24 * time.Hour) })
	began := env.Now()
	env.Timeout(run.ID(), time.Hour, 0)
	env.RunUntilDone()
	if _, err := run.Result(); !stepwell.HasCode(err, "timeout") || env.Now().Sub(began) != time.Hour {
		t.Errorf("after %s got %v", env.Now().Sub(began), err)
	}
}

func groundControl7(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, time.Minute} {
		env, run := start(t, func(w *stepwell.Context) (string, error) { return echo.Run(w, "x") })
		env.Cancel(run.ID(), "a mistake", grace) // it was never called
		env.RunUntilDone()
		_, err := run.Result()
		if env.Status(run.ID()) != "cancelled" || errors.Is(err, stepwelltest.ErrRunning) {
			t.Errorf("with a grace of %s the run is %s: %v", grace, env.Status(run.ID()), err)
		}
	}
}

func groundControl8(t *testing.T) {
	t.Parallel()
	type details struct{ Text string }
	declined := stepwell.NewErrorKind[details]("declined")
	child := stepwell.NewWorkflow[string, string]("child")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		var ends []string
		for _, how := range []string{"completes", "fails", "is cancelled", "is late"} {
			var options []stepwell.ChildOption
			if how == "is late" {
				options = append(options, stepwell.Timeout(time.Minute), stepwell.TimeoutGrace(time.Minute))
			}
			if how == "is cancelled" {
				options = append(options, stepwell.ChildGrace(0))
			}
			c := child.Child(w, how, options...)
			w.Sleep(time.Second)
			if how == "is cancelled" {
				c.Cancel(w, "not needed")
			}
			out, err := c.Await(w)
			failed, cancelled := (*stepwell.RunFailedError)(nil), (*stepwell.RunCancelledError)(nil)
			switch found, ok := declined.Find(err); {
			case err == nil:
				ends = append(ends, out)
			case errors.As(err, &cancelled) && cancelled.RunID != "" && errors.Is(err, stepwell.ErrCancelled):
				ends = append(ends, "cancelled")
			case !errors.As(err, &failed) || failed.RunID == "":
				return "", err
			case ok:
				ends = append(ends, found.Text)
			case errors.Is(err, stepwell.ErrTimeout):
				ends = append(ends, "timeout")
			}
		}
		return strings.Join(ends, ", "), nil
	})
	env.Register(child.Bind(func(w *stepwell.Context, how string) (string, error) {
		switch how {
		case "completes":
			return "output", nil
		case "fails":
			return "", declined.New(details{"details"})
		}
		return "", w.Sleep(time.Hour)
	}))
	env.RunUntilDone()
	if got, err := run.Result(); got != "output, details, cancelled, timeout" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
