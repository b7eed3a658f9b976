package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// echo is a step that returns its input, and fails for "bad".
var echo = stepwell.NewStep[string, string]("echo", stepwell.Attempts(1))

func execute(_ context.Context, in string) (string, error) {
	if in == "bad" {
		return "", stepwell.Permanent(errors.New("it is bad"))
	}
	return in, nil
}

// result runs a workflow to its end and returns its output.
func result(t *testing.T, fn func(w *stepwell.Context) (string, error)) (string, error) {
	t.Helper()
	workflow := stepwell.NewWorkflow[stepwell.None, string]("test")
	env := stepwelltest.New(t, echo.Bind(execute),
		workflow.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return fn(w) }))
	run := stepwelltest.Start(env, workflow, stepwell.None{})
	env.RunUntilDone()
	return run.Result()
}

func TestCompensationsRunBackwardsOnce(t *testing.T) {
	t.Parallel()
	var undone []string
	undo := echo.Undo(func(w *stepwell.Context, in string, _ *string) error {
		_, err := stepwell.Do(w, "undo", func(context.Context) (string, error) {
			undone = append(undone, in)
			return in, nil
		})
		if in == "second" {
			return errors.New("it stays")
		}
		return err
	})
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
			for _, in := range []string{"first", "second"} {
				if _, err := echo.Run(w, in, undo); err != nil {
					return "", err
				}
			}
			late := echo.Go(w, "third", undo)
			if _, err := echo.Run(w, "bad", undo); err != nil {
				return "", err
			}
			return late.Await(w)
		})
	})
	if err == nil || !strings.Contains(err.Error(), "it is bad") || !strings.Contains(err.Error(), "it stays") {
		t.Errorf("got error %v, want those of the step and of the compensation", err)
	}
	if got := strings.Join(undone, " "); got != "third second first" {
		t.Errorf("undid %s", got)
	}
}

func TestSelectTakesTheFirstOfTheLog(t *testing.T) {
	t.Parallel()
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		return stepwell.Select(w,
			stepwell.After(time.Hour, func(*stepwell.Context) (string, error) { return "timer", nil }),
			stepwell.On(echo.Go(w, "step"), func(_ *stepwell.Context, out string) (string, error) { return out, nil }),
		)
	})
	if got != "step" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestMapKeepsOrderAndReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	each := func(w *stepwell.Context, in string) (string, error) { return echo.Run(w, in) }
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		out, err := stepwell.Map(w, []string{"c", "a", "b"}, each, stepwell.Concurrency(2))
		return strings.Join(out, ""), err
	})
	if got != "cab" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = result(t, func(w *stepwell.Context) (string, error) {
		_, err := stepwell.Map(w, []string{"a", "bad", "b"}, each)
		return "", err
	})
	if err == nil || !strings.Contains(err.Error(), "it is bad") {
		t.Errorf("got error %v", err)
	}
	got, err = result(t, func(w *stepwell.Context) (string, error) {
		out, err := stepwell.Map(w, nil, each)
		return fmt.Sprint(out == nil, len(out)), err
	})
	if got != "false 0" || err != nil {
		t.Errorf("got %q, %v; want an empty result", got, err)
	}
}

func TestOuterHandleIsRefused(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		return stepwell.Go(w, "inner", func(*stepwell.Context) (string, error) { return echo.Run(w, "x") }).Await(w)
	})
	if !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), "use the Context that it gets") {
		t.Errorf("got %v", err)
	}
}

func TestForeignGoroutineIsRefused(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		refused := make(chan string)
		go func() {
			defer func() { refused <- fmt.Sprint(recover()) }()
			w.Sleep(time.Second)
		}()
		return "", errors.New(<-refused)
	})
	if err == nil || !strings.Contains(err.Error(), "used in another goroutine") {
		t.Errorf("got %v", err)
	}
}

func TestRecoverSeesNoSuspension(t *testing.T) {
	t.Parallel()
	var recovered any
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		defer func() {
			if v := recover(); v != nil {
				recovered = v
			}
		}()
		w.Sleep(time.Hour)
		return "awake", nil
	})
	if got != "awake" || err != nil || recovered != nil {
		t.Errorf("got %q, %v, and recovered %v", got, err, recovered)
	}
}

func TestPanicBlocksTheRun(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(*stepwell.Context) (string, error) { panic("a bug") })
	if !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("got %v, want a blocked run", err)
	}
}

func TestErrorKindsComeBackTyped(t *testing.T) {
	t.Parallel()
	type reason struct{ Text string }
	declined := stepwell.NewErrorKind[reason]("card_declined")
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		_, err := stepwell.Do(w, "charge", func(context.Context) (string, error) {
			return "", fmt.Errorf("the bank: %w", declined.New(reason{"empty"}))
		})
		details, ok := declined.Find(err)
		return fmt.Sprint(details.Text, ok), nil
	})
	if got != "emptytrue" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
