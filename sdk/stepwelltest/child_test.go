package stepwelltest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var booking = stepwell.NewWorkflow[string, string]("booking")

// book books something and waits for an hour. The booking "bad" fails then, after a minute; what has booked is undone.
func book(booked map[string]bool) func(*stepwell.Context, string) (string, error) {
	return func(w *stepwell.Context, what string) (string, error) {
		return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
			if _, err := echo.Run(w, what, echo.Undo(func(w *stepwell.Context, in string, _ *string) error {
				return stepwell.Exec(w, "undo", func(context.Context) error {
					delete(booked, in)
					return nil
				})
			})); err != nil {
				return "", err
			}
			if err := stepwell.Exec(w, "book", func(context.Context) error { booked[what] = true; return nil }); err != nil {
				return "", err
			}
			if what == "rotten" {
				return "", errors.Join(w.Sleep(time.Minute), stepwell.Fail("rotten", "it is rotten"))
			}
			return what, w.Sleep(time.Hour)
		})
	}
}

// TestChildrenThatAreCancelledUndo has children in progress when what has started them ends, in each way.
func TestChildrenThatAreCancelledUndo(t *testing.T) {
	t.Parallel()
	items := []string{"a", "b", "rotten", "c"}
	for name, test := range map[string]struct {
		parent func(w *stepwell.Context) error
		left   string // of what was booked
	}{
		"another item of a map fails": {func(w *stepwell.Context) error {
			_, err := stepwell.Map(w, items, func(w *stepwell.Context, what string) (string, error) {
				return booking.Child(w, what).Await(w)
			})
			return err
		}, ""},
		"the parent fails": {func(w *stepwell.Context) error {
			booking.Child(w, "a")
			booking.Child(w.Detached(), "b")
			return errors.Join(w.Sleep(time.Minute), errors.New("a mistake"))
		}, ""},
		"the parent completes": {func(w *stepwell.Context) error {
			booking.Child(w, "a")
			return w.Sleep(time.Minute)
		}, ""},
		"its time is over": {func(w *stepwell.Context) error {
			_, err := booking.Child(w, "a").AwaitWithin(w, time.Minute)
			if !errors.Is(err, stepwell.ErrTimeout) {
				return err
			}
			return nil
		}, ""},
		"the parent is cancelled": {func(w *stepwell.Context) error {
			_, err := booking.Child(w, "a").Await(w)
			return err
		}, ""},
		"without a grace": {func(w *stepwell.Context) error {
			booking.Child(w, "a", stepwell.ChildGrace(0))
			return w.Sleep(time.Minute)
		}, "a"},
		"it is left": {func(w *stepwell.Context) error {
			booking.Child(w, "a", stepwell.LeaveOnParentEnd())
			return w.Sleep(time.Minute)
		}, "a"},
	} {
		booked := map[string]bool{}
		env, run := start(t, func(w *stepwell.Context) (string, error) { return "", test.parent(w) })
		env.Register(booking.Bind(book(booked)))
		env.Advance(time.Second)
		if name == "the parent is cancelled" {
			env.Cancel(run.ID(), "not needed", 2*time.Hour)
		}
		env.Advance(30 * time.Minute)
		left := slices.Sorted(maps.Keys(booked))
		if env.Status(run.ID()) == "running" || strings.Join(left, " ") != test.left {
			t.Errorf("%s: the run is %s, and %q is booked", name, env.Status(run.ID()), left)
		}
	}
}

// TestAChildThatCompletesThoughItIsCancelledSaysSo waits for the real end of a child.
func TestAChildThatCompletesThoughItIsCancelledSaysSo(t *testing.T) {
	t.Parallel()
	env := stepwelltest.New(t)
	workflow, definition := declare(func(w *stepwell.Context) (string, error) {
		child := booking.Child(w, "a", stepwell.ChildGrace(2*time.Minute))
		none, err := stepwell.Go(w, "within", func(w *stepwell.Context) (string, error) {
			return booking.Child(w, "b", stepwell.ChildGrace(2*time.Minute)).Await(w)
		}).AwaitWithin(w, time.Second)
		if none != "" || !errors.Is(err, stepwell.ErrTimeout) {
			return "", errors.New("it was not cancelled")
		}
		child.Cancel(w, "not needed")
		return child.Await(w)
	})
	env.Register(definition, booking.Bind(func(w *stepwell.Context, what string) (string, error) {
		return what + " all the same", w.Detached().Sleep(time.Minute)
	}))
	run := stepwelltest.Start(env, workflow, stepwell.None{})
	env.RunUntilDone()
	if got, err := run.Result(); got != "a all the same" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
