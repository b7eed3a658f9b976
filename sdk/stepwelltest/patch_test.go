package stepwelltest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// TestCommandOfALostAnswerIsWrittenLater checks commands that leave no trace of their own if they were carried out
// before: they must not be forgotten because something else has come after the answer was lost.
func TestCommandOfALostAnswerIsWrittenLater(t *testing.T) {
	t.Parallel()
	kind := stepwell.NewHook[string]("hook")
	bug := true
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		a, b := kind.Open(w, stepwell.Token("a")), kind.Open(w, stepwell.Token("b"))
		if _, err := a.Receive(w); err != nil {
			return "", err
		}
		b.Close(w)
		w.SetAttribute("closed", "b")
		balance.Set(w, 1)
		if bug {
			panic("a bug")
		}
		return a.Receive(w)
	})
	env.RunUntilIdle()
	env.Resume("a", "first")
	env.RunUntilIdle()
	if got := env.Tokens(run.ID()); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("the open hooks are %q", got)
	}
	bug = false
	env.Resume("a", "second")
	env.RunUntilDone()
	n, _ := stepwelltest.Stored(env, balance, run.ID())
	if got := env.Tokens(run.ID()); !slices.Equal(got, []string{"a"}) || n != 1 || env.Attributes(run.ID())["closed"] != "b" {
		t.Errorf("the open hooks are %q, the store has %d, the attributes are %v", got, n, env.Attributes(run.ID()))
	}
	if got, err := run.Result(); got != "second" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestPatchBehindAStep deploys a patch while one run is before its place, and another one behind it.
func TestPatchBehindAStep(t *testing.T) {
	t.Parallel()
	deployed := false
	code := func(w *stepwell.Context) (string, error) {
		for _, day := range []string{"a", "b"} {
			w := w.Scope(day)
			if _, err := echo.Run(w, day); err != nil {
				return "", err
			}
			if deployed && w.Patched("audit") {
				if _, err := echo.Run(w, "audited"); err != nil {
					return "", err
				}
			}
			if err := w.Sleep(24 * time.Hour); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	env, run := start(t, code)
	env.Advance(time.Hour)
	deployed = true
	env.RunUntilDone()
	if _, err := run.Result(); err != nil {
		t.Fatal(err)
	}
	log := logged(run)
	if slices.Contains(log, "step_created a.echo#2") || !slices.Contains(log, "step_created b.echo#2") {
		t.Errorf("want the patch in the second iteration only: %q", log)
	}
}

func TestDefinitionsWithoutAFunctionAreRefused(t *testing.T) {
	t.Parallel()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "app", Unsigned: "a test"})
	app.Register(echo.Bind(nil), order.Bind(nil))
	if _, err := app.Handler(); err == nil || strings.Count(err.Error(), "it has no function") != 2 {
		t.Errorf("got %v", err)
	}
}
