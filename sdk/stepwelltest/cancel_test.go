package stepwelltest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// stuck is a step that fails for an hour.
var stuck = stepwell.NewStep[string, string]("stuck", stepwell.Attempts(2), stepwell.Backoff(time.Hour, time.Hour))

// start starts a workflow, in an environment with the steps echo and stuck.
func start(t *testing.T, fn func(w *stepwell.Context) (string, error)) (*stepwelltest.Env, *stepwelltest.Run[string]) {
	t.Helper()
	workflow := stepwell.NewWorkflow[stepwell.None, string]("test")
	env := stepwelltest.New(t, echo.Bind(execute),
		stuck.Bind(func(context.Context, string) (string, error) { return "", errors.New("it hangs") }),
		workflow.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return fn(w) }))
	return env, stepwelltest.Start(env, workflow, stepwell.None{})
}

// logged returns the types and IDs of the events of a run.
func logged(run *stepwelltest.Run[string]) (events []string) {
	for _, e := range run.Log().Events {
		events = append(events, strings.TrimSpace(e.Type+" "+e.CorrelationID))
	}
	return events
}

// on is the case that a source is ready.
func on[T any](source stepwell.Source[T], name string) stepwell.Case[string] {
	return stepwell.On(source, func(*stepwell.Context, T) (string, error) { return name, nil })
}

func TestATimerThatLostWakesNobody(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		if _, err := stepwell.Select(w, on(echo.Go(w, "fast"), ""), on(w.Timer(time.Hour), "")); err != nil {
			return "", err
		}
		return stepwell.NewHook[string]("end").Open(w, stepwell.Token("end")).Receive(w)
	})
	env.RunUntilIdle()
	before := run.Invocations()
	env.Advance(24 * time.Hour)
	if got := run.Invocations(); got != before {
		t.Errorf("the workflow was called %d times more", got-before)
	}
	env.Resume("end", "over")
	env.RunUntilDone()
	if got, err := run.Result(); got != "over" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUntilIsExaminedAfterEachEvent(t *testing.T) {
	t.Parallel()
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		votes := 0
		for _, voter := range []string{"a", "b", "c"} {
			stepwell.Go(w, voter, func(w *stepwell.Context) (string, error) {
				defer func() { votes++ }()
				return echo.Run(w, voter)
			})
		}
		if err := w.Until(func() bool { return votes >= 2 }); err != nil {
			return "", err
		}
		return stepwell.Go(w, "rest", func(w *stepwell.Context) (string, error) {
			return "all", w.Until(func() bool { return votes >= 3 })
		}).AwaitWithin(w, time.Hour)
	})
	if got != "all" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestMapCollectsErrors(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		out, err := stepwell.Map(w, []string{"a", "bad", "b", "bad"},
			func(w *stepwell.Context, in string) (string, error) { return echo.Run(w, in) },
			stepwell.CollectErrors(), stepwell.Concurrency(2))
		if strings.Join(out, ",") != "a,,b," {
			return "", errors.New("got " + strings.Join(out, ","))
		}
		return "", err
	})
	if err == nil || strings.Count(err.Error(), "it is bad") != 2 {
		t.Errorf("got %v, want two errors", err)
	}
}

// reserving is a workflow with a saga that sleeps for a year.
func reserving(undone *[]string, detached bool) func(w *stepwell.Context) (string, error) {
	return func(w *stepwell.Context) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
			undo := echo.Undo(func(w *stepwell.Context, in string, _ *string) error {
				if err := w.Sleep(time.Minute); err != nil {
					return err
				}
				_, err := stepwell.Do(w, "undo", func(context.Context) (string, error) {
					*undone = append(*undone, in)
					return "", nil
				})
				return err
			})
			if _, err := echo.Run(w, "room", undo); err != nil {
				return "", err
			}
			if detached {
				w = w.Detached()
			}
			return "overslept", w.Sleep(365 * 24 * time.Hour)
		})
	}
}

func TestASagaIsDetachedFromCancellation(t *testing.T) {
	t.Parallel()
	var undone []string
	env, run := start(t, reserving(&undone, false))
	env.Advance(time.Hour)
	env.Cancel(run.ID(), "nobody wants it", time.Hour)
	env.RunUntilDone()
	_, err := run.Result()
	if env.Status(run.ID()) != "cancelled" || strings.Join(undone, " ") != "room" {
		t.Errorf("the run is %s (%v), and undid %q", env.Status(run.ID()), err, undone)
	}
}

func TestGraceIsEnforced(t *testing.T) {
	t.Parallel()
	var undone []string
	env, run := start(t, reserving(&undone, true))
	env.Advance(time.Hour)
	began := env.Now()
	env.Cancel(run.ID(), "nobody wants it", time.Hour)
	env.RunUntilDone()
	if passed := env.Now().Sub(began); env.Status(run.ID()) != "cancelled" || passed != time.Hour {
		t.Errorf("the run is %s after %s", env.Status(run.ID()), passed)
	}
}

func TestATimeoutCompensates(t *testing.T) {
	t.Parallel()
	var undone []string
	env, run := start(t, reserving(&undone, false))
	env.Timeout(run.ID(), 24*time.Hour, time.Hour)
	env.RunUntilDone()
	_, err := run.Result()
	if !stepwell.HasCode(err, "timeout") || strings.Join(undone, " ") != "room" {
		t.Errorf("got %v, and undid %q", err, undone)
	}
}

func TestEveryWaitEndsWithCancellation(t *testing.T) {
	t.Parallel()
	hook := stepwell.NewHook[string]("hook")
	for name, wait := range map[string]func(w *stepwell.Context) error{
		"Sleep":   func(w *stepwell.Context) error { return w.Sleep(time.Hour * 1000) },
		"Until":   func(w *stepwell.Context) error { return w.Until(func() bool { return false }) },
		"a step":  func(w *stepwell.Context) error { _, err := stuck.Run(w, ""); return err },
		"Receive": func(w *stepwell.Context) error { _, err := hook.Open(w).Receive(w); return err },
		"a map": func(w *stepwell.Context) error {
			_, err := stepwell.Map(w, []string{"x"}, func(w *stepwell.Context, in string) (string, error) { return stuck.Run(w, in) })
			return err
		},
		"a coroutine": func(w *stepwell.Context) error {
			_, err := stepwell.Go(w, "go", func(w *stepwell.Context) (string, error) { return "", w.Sleep(time.Hour * 1000) }).Await(w)
			return err
		},
		"AwaitWithin": func(w *stepwell.Context) error {
			_, err := stepwell.Go(w, "go", slow).AwaitWithin(w, time.Hour*1000)
			return err
		},
		"Select": func(w *stepwell.Context) error {
			_, err := stepwell.Select(w, on(stuck.Go(w, ""), ""))
			return err
		},
		"Cancelled": func(w *stepwell.Context) error {
			same := func(_ *stepwell.Context, reason string) (string, error) { return reason, nil }
			reason, err := stepwell.Select(w, on(stuck.Go(w, ""), "something else"), stepwell.On(w.Cancelled(), same))
			if err != nil || reason != "enough" {
				return errors.New("something else came first")
			}
			return stepwell.ErrCancelled
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, run := start(t, func(w *stepwell.Context) (string, error) {
				err := wait(w)
				if !errors.Is(err, stepwell.ErrCancelled) {
					return "", errors.New("not cancelled")
				}
				if _, err := echo.Run(w, "new"); !errors.Is(err, stepwell.ErrCancelled) {
					return "", errors.New("something new has begun")
				}
				if got, err := echo.Run(w.Detached(), "cleaned"); got != "cleaned" || err != nil {
					return "", errors.New("a detached handle was cancelled")
				}
				return "", err
			})
			env.Advance(time.Minute)
			env.Cancel(run.ID(), "enough", time.Hour)
			env.RunUntilIdle()
			if _, err := run.Result(); env.Status(run.ID()) != "cancelled" {
				t.Errorf("the run is %s: %v", env.Status(run.ID()), err)
			}
		})
	}
}

func TestChildIsCancelledGracefully(t *testing.T) {
	t.Parallel()
	var undone []string
	child := stepwell.NewWorkflow[stepwell.None, string]("child")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		c := child.Child(w, stepwell.None{})
		w.Sleep(time.Hour)
		c.Cancel(w, "not needed")
		_, err := c.Await(w)
		cancelled := (*stepwell.RunCancelledError)(nil)
		if !errors.As(err, &cancelled) || !errors.Is(err, stepwell.ErrCancelled) {
			return "", err
		}
		return cancelled.RunID, nil
	})
	env.Register(child.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return reserving(&undone, false)(w) }))
	env.RunUntilDone()
	children := env.Children()
	if got, err := run.Result(); err != nil || len(children) != 1 || got != children[0] || strings.Join(undone, " ") != "room" {
		t.Errorf("got %q, %v, children %q, and undid %q", got, err, children, undone)
	}
}

func TestChildrenEndWithTheirParent(t *testing.T) {
	t.Parallel()
	child := stepwell.NewWorkflow[stepwell.None, string]("child")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		child.Child(w, stepwell.None{})
		child.Child(w, stepwell.None{}, stepwell.LeaveOnParentEnd())
		return "", w.Sleep(time.Hour)
	})
	env.Register(child.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return "", w.Sleep(2 * time.Hour) }))
	env.RunUntilDone()
	_, err := run.Result()
	if c := env.Children(); err != nil || env.Status(c[0]) != "cancelled" || env.Status(c[1]) != "completed" {
		t.Errorf("got %v; the children are %s and %s", err, env.Status(c[0]), env.Status(c[1]))
	}
}

func TestStepThatIsCancelledTooLateIsUndone(t *testing.T) {
	t.Parallel()
	var undone []string
	undo := func(w *stepwell.Context, in string, _ *string) error {
		_, err := stepwell.Do(w, "undo", func(context.Context) (string, error) {
			undone = append(undone, in)
			return "", nil
		})
		return err
	}
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
			stuck.Go(w, "never", stuck.Undo(undo))
			echo.Go(w, "late", echo.Undo(undo))
			return "", errors.New("a mistake")
		})
	})
	env.RunUntilDone()
	if _, err := run.Result(); err == nil || !strings.Contains(err.Error(), "a mistake") || len(undone) != 0 {
		t.Errorf("got %v, and undid %q", err, undone) // both were cancelled before they began
	}
}

func TestCoroutinesCleanUpBeforeTheRunEnds(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(w *stepwell.Context, fn func(w *stepwell.Context) (string, error)) (string, error){
		"Go": func(w *stepwell.Context, fn func(w *stepwell.Context) (string, error)) (string, error) {
			return stepwell.Go(w, "go", fn).Await(w)
		},
		"AwaitWithin": func(w *stepwell.Context, fn func(w *stepwell.Context) (string, error)) (string, error) {
			return stepwell.Go(w, "go", fn).AwaitWithin(w, time.Hour)
		},
		"Map": func(w *stepwell.Context, fn func(w *stepwell.Context) (string, error)) (string, error) {
			_, err := stepwell.Map(w, []int{1}, func(w *stepwell.Context, _ int) (string, error) { return fn(w) })
			return "", err
		},
	} {
		var undone []string
		env, run := start(t, func(w *stepwell.Context) (string, error) { return wait(w, reserving(&undone, false)) })
		env.Advance(time.Minute)
		env.Cancel(run.ID(), "enough", time.Hour)
		env.RunUntilDone()
		if env.Status(run.ID()) != "cancelled" || strings.Join(undone, " ") != "room" {
			_, err := run.Result()
			t.Errorf("%s: the run is %s (%v), and undid %q", name, env.Status(run.ID()), err, undone)
		}
	}
}

func TestWhatIsCancelledBeforeItBeginsIsNotExecuted(t *testing.T) {
	t.Parallel()
	executed := false
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		f := stepwell.DoGo(w, "late", func(context.Context) (string, error) {
			executed = true
			return "", nil
		})
		f.Cancel(w, strings.Repeat("two\nlines ", 100))
		if _, err := f.Await(w); !errors.Is(err, stepwell.ErrCancelled) {
			return "", errors.New("not cancelled")
		}
		return "fine", w.Sleep(time.Hour)
	})
	env.RunUntilDone()
	if got, err := run.Result(); got != "fine" || err != nil || executed {
		t.Errorf("got %q, %v, executed: %v", got, err, executed)
	}
}

func TestWorkflowIsCalledOnceForAllOfSeveralSteps(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		var all []*stepwell.Future[string]
		for range 50 {
			all = append(all, echo.Go(w, "x", stepwell.Remote()))
		}
		out, err := stepwell.All(w, all...)
		if err != nil {
			return "", err
		}
		both, err := stepwell.All(w, echo.Go(w, "a", stepwell.Remote()), echo.Go(w, "b", stepwell.Remote()))
		return strings.Join(slices.Concat(out, both), ""), err
	})
	env.RunUntilDone()
	if got, err := run.Result(); got != strings.Repeat("x", 50)+"ab" || err != nil || run.Invocations() != 3 {
		t.Errorf("got %q, %v in %d calls", got, err, run.Invocations())
	}
}

// TestWhatWasNotOpenedIsNotClosed asks, and starts a timer, in a part that was cancelled. The server would refuse to
// close a hook, or to cancel a timer, that there is not.
func TestWhatWasNotOpenedIsNotClosed(t *testing.T) {
	t.Parallel()
	approval := stepwell.NewApproval("approval")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		err := w.Sleep(time.Hour)
		_, again := approval.Ask(w, stepwell.Question{Text: "sure?", Token: "sure"})
		timer := w.Timer(time.Hour)
		timer.Cancel(w, "")
		if _, err := timer.Await(w.Detached()); !errors.Is(err, stepwell.ErrCancelled) {
			return "the cancelled timer has ended", err
		}
		if !errors.Is(again, stepwell.ErrCancelled) {
			return "", errors.Join(errors.New("it was asked"), again)
		}
		return "", err
	})
	env.RunUntilIdle()
	env.Cancel(run.ID(), "enough", time.Hour)
	env.Advance(30 * time.Minute)
	if got := env.Status(run.ID()); got != "cancelled" {
		_, err := run.Result()
		t.Errorf("the run is %s: %v", got, err)
	}
}
