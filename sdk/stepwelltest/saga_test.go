package stepwelltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// give is the step that undoes one of echo.
var give = stepwell.NewStep[string, string]("give", stepwell.Attempts(1))

// giveBack undoes a step with another one.
func giveBack(w *stepwell.Context, in string, _ *string) error {
	_, err := give.Run(w, in)
	return err
}

func TestSagaUndoesEachStepOnceInEveryCrash(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		workflow, definition := declare(func(w *stepwell.Context) (string, error) {
			return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (string, error) {
				for _, in := range []string{"room", "flight"} {
					if _, err := echo.Run(w, in, echo.Undo(giveBack)); err != nil {
						return "", err
					}
				}
				saga.Add("note", func(w *stepwell.Context) error {
					_, err := stepwell.Do(w, "note", func(context.Context) (string, error) { return "", nil })
					return err
				})
				return echo.Run(w, "bad", echo.Undo(giveBack))
			})
		})
		env.Register(definition, echo.Bind(execute), give.Bind(execute))
		run := stepwelltest.Start(env, workflow, stepwell.None{})
		env.RunUntilDone()
		if _, err := run.Result(); err == nil || !strings.Contains(err.Error(), "it is bad") {
			t.Errorf("got %v", err)
		}
		want := []string{"step_created undo:note.note", "step_created undo:echo.give", "step_created undo:echo#2.give"}
		got := slices.DeleteFunc(logged(run), func(e string) bool { return !strings.HasPrefix(e, "step_created undo") })
		if !slices.Equal(got, want) {
			t.Errorf("undid %q, want %q", got, want)
		}
	})
}

// TestTheLogSaysWhatUndoesAStep: a function by its name, a literal by where it begins, of steps executed here and by the
// server.
func TestTheLogSaysWhatUndoesAStep(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
			for _, options := range [][]stepwell.StepOption{
				{echo.Undo(giveBack)},
				{echo.Undo(giveBack), stepwell.Remote()},
				{echo.Undo(func(w *stepwell.Context, in string, out *string) error { return giveBack(w, in, out) })},
				nil,
			} {
				if _, err := echo.Run(w, "room", options...); err != nil {
					return "", err
				}
			}
			return "", nil
		})
	})
	env.RunUntilDone()
	if _, err := run.Result(); err != nil {
		t.Fatal(err)
	}
	var undo []string
	for _, e := range run.Log().Events {
		if e.Type == "step_created" {
			var data struct{ Undo string }
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			undo = append(undo, data.Undo)
		}
	}
	if len(undo) != 4 || undo[0] != "giveBack" || undo[1] != "giveBack" || !strings.HasPrefix(undo[2], "saga_test.go:") || undo[3] != "" {
		t.Errorf("got %q", undo)
	}
}

// TestAStepOfUnknownOutcomeIsUndone has a step end in each way, here and by a call of its own.
func TestAStepOfUnknownOutcomeIsUndone(t *testing.T) {
	t.Parallel()
	charge := stepwell.NewStep[string, string]("charge", stepwell.Attempts(1))
	for name, test := range map[string]struct {
		fn   func(ctx context.Context) (string, error)
		want string
	}{
		"it succeeds":      {func(context.Context) (string, error) { return "ref", nil }, "ref"},
		"an error":         {func(context.Context) (string, error) { return "", errors.New("connection reset") }, "unknown"},
		"a panic":          {func(context.Context) (string, error) { panic("a bug") }, "unknown"},
		"its time is over": {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "unknown"},
		"Fail":             {func(context.Context) (string, error) { return "", stepwell.Fail("declined", "no") }, ""},
		"Permanent": {func(context.Context) (string, error) {
			return "", stepwell.Permanent(errors.New("declined"))
		}, ""},
	} {
		for _, options := range [][]stepwell.StepOption{nil, {stepwell.Remote()}} {
			if name == "its time is over" && options != nil {
				continue // the server ends it, with the code no_answer
			}
			undone := ""
			workflow, definition := declare(func(w *stepwell.Context) (string, error) {
				return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
					undo := charge.Undo(func(_ *stepwell.Context, in string, out *string) error {
						if undone = "unknown"; out != nil {
							undone = *out
						}
						if in != "in" {
							return errors.New("it does not get the input")
						}
						return nil
					})
					options := append([]stepwell.StepOption{undo, stepwell.AttemptTimeout(time.Second)}, options...)
					if _, err := charge.Run(w, "in", options...); err != nil {
						return "", err
					}
					return "", errors.New("something else fails")
				})
			})
			env := stepwelltest.New(t, definition,
				charge.Bind(func(ctx context.Context, _ string) (string, error) { return test.fn(ctx) }))
			run := stepwelltest.Start(env, workflow, stepwell.None{})
			env.RunUntilDone()
			if _, err := run.Result(); env.Status(run.ID()) != "failed" || undone != test.want {
				t.Errorf("%s: %v, and undone is %q, want %q", name, err, undone, test.want)
			}
		}
	}
}

func TestCompensationGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	var undone []string
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		undone = nil
		return stepwell.WithSaga(w, func(_ *stepwell.Context, saga *stepwell.Saga) (string, error) {
			for _, name := range []string{"first", "second", "third"} {
				saga.Add(name, func(*stepwell.Context) error {
					undone = append(undone, name)
					if name != "first" {
						return errors.New("no " + name)
					}
					return nil
				})
			}
			return "", errors.New("a failure")
		})
	})
	if err == nil || strings.Join(undone, " ") != "third second first" {
		t.Errorf("got %v, and undid %q", err, undone)
	}
	for _, want := range []string{"a failure", "undo third: no third", "undo second: no second"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not have %q", err, want)
		}
	}
}

// TestEachSagaUndoesItsPart: what a saga has done stays once it has returned, and the enclosing one undoes the rest.
func TestEachSagaUndoesItsPart(t *testing.T) {
	t.Parallel()
	var undone []string
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		undone = nil
		does := func(what string, err error) func(*stepwell.Context, *stepwell.Saga) (string, error) {
			return func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
				_, stepErr := echo.Run(w, what, echo.Undo(func(_ *stepwell.Context, in string, _ *string) error {
					undone = append(undone, in)
					return nil
				}))
				return what, errors.Join(stepErr, err)
			}
		}
		_, _ = stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (string, error) {
			_, _ = stepwell.WithSaga(w, does("stays", nil))
			_, _ = stepwell.WithSaga(w, does("tried", errors.New("it fails by itself")))
			return does("begun", errors.New("a failure"))(w, saga)
		})
		return stepwell.WithSaga(w, does("another", nil))
	})
	if got != "another" || err != nil || strings.Join(undone, " ") != "tried begun" {
		t.Errorf("got %q, %v, and undid %q", got, err, undone)
	}
}

func TestRunsThatAreBlockedDoNotCompensate(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() (string, error){
		"a panic":           func() (string, error) { panic("a bug") },
		"an error of Block": func() (string, error) { return "", stepwell.Block(errors.New("a bug")) },
	} {
		undone := false
		_, err := result(t, func(w *stepwell.Context) (string, error) {
			return stepwell.WithSaga(w, func(_ *stepwell.Context, saga *stepwell.Saga) (string, error) {
				saga.Add("all", func(*stepwell.Context) error {
					undone = true
					return nil
				})
				return end()
			})
		})
		if !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), "a bug") || undone {
			t.Errorf("%s: got %v, undone: %v; want a blocked run", name, err, undone)
		}
	}
}

func TestCancelledRunWhoseCompensationFailsHasFailed(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (string, error) {
			saga.Add("room", func(*stepwell.Context) error { return errors.New("the hotel insists") })
			return "", w.Sleep(time.Hour)
		})
	})
	env.RunUntilIdle()
	env.Cancel(run.ID(), "no trip", time.Minute)
	env.RunUntilDone()
	if _, err := run.Result(); env.Status(run.ID()) != "failed" || !strings.Contains(err.Error(), "the hotel insists") {
		t.Errorf("the run is %s: %v", env.Status(run.ID()), err)
	}
}

// TestStepInProgressIsUndoneIfItSucceeds compensates while a step is in progress whose result comes before it can be
// cancelled.
func TestStepInProgressIsUndoneIfItSucceeds(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryOrder(t, func(t testing.TB, env *stepwelltest.Env) {
		workflow, definition := declare(func(w *stepwell.Context) (string, error) {
			return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
				a, b := echo.Go(w, "bad"), echo.Go(w, "good", echo.Undo(giveBack))
				if _, err := a.Await(w); err != nil {
					return "", stepwell.Fail("expected", err.Error())
				}
				return b.Await(w)
			})
		})
		env.Register(definition, echo.Bind(execute), give.Bind(execute))
		run := stepwelltest.Start(env, workflow, stepwell.None{})
		env.RunUntilDone()
		_, err := run.Result()
		log := logged(run)
		undone, succeeded := slices.Contains(log, "step_completed undo:echo.give"), slices.Contains(log, "step_completed echo#2")
		if !stepwell.HasCode(err, "expected") || undone != succeeded {
			t.Errorf("got %v; succeeded: %v, undone: %v, in %q", err, succeeded, undone, log)
		}
	})
}

func TestOnEnd(t *testing.T) {
	t.Parallel()
	var ends []string
	got, err := result(t, func(w *stepwell.Context) (string, error) {
		ends = nil
		for _, name := range []string{"first", "second"} {
			w.OnEnd(func(w *stepwell.Context, err error) {
				out, stepErr := echo.Run(w, name)
				ends = append(ends, fmt.Sprint(out, err, stepErr))
			})
		}
		return "out", w.Sleep(time.Hour)
	})
	if got != "out" || err != nil || strings.Join(ends, " ") != "second<nil><nil> first<nil><nil>" &&
		strings.Join(ends, " ") != "second<nil> <nil> first<nil> <nil>" {
		t.Errorf("got %q, %v, and at the end %q", got, err, ends)
	}
}

// declare returns a workflow with its definition.
func declare(fn func(w *stepwell.Context) (string, error)) (*stepwell.Workflow[stepwell.None, string], stepwell.Definition) {
	workflow := stepwell.NewWorkflow[stepwell.None, string]("test", stepwell.WithInbox(notes))
	return workflow, workflow.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return fn(w) })
}
