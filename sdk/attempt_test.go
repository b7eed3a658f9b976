package stepwell

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestAnAttemptEndsAtItsTimeThoughItsCodeDoesNot has steps that ignore their context.
func TestAnAttemptEndsAtItsTimeThoughItsCodeDoesNot(t *testing.T) {
	t.Parallel()
	hang := make(chan bool)
	defer close(hang)
	for name, run := range map[string]func(*Context, func(context.Context) (string, error)) (string, error){
		"Do": func(w *Context, fn func(context.Context) (string, error)) (string, error) {
			return Do(w, "step", fn, AttemptTimeout(time.Second), Attempts(2), Backoff(time.Millisecond, time.Millisecond))
		},
		"a step": func(w *Context, _ func(context.Context) (string, error)) (string, error) {
			return NewStep[string, string]("step").Run(w, "", AttemptTimeout(time.Second), Attempts(1))
		},
	} {
		var attempts atomic.Int32
		fn := func(context.Context) (string, error) {
			attempts.Add(1)
			<-hang
			return "", errors.New("too late")
		}
		step := NewStep[string, string]("step")
		app, _ := newTestApp(workflowOf(func(w *Context) (string, error) { return run(w, fn) }),
			step.Bind(func(ctx context.Context, _ string) (string, error) { return fn(ctx) }))
		want := map[string]int{"Do": 2, "a step": 1}[name]
		if got := newFake(t, app).invoke(nil); !strings.HasSuffix(got.types(), "recordStep step, fail") ||
			!strings.Contains(got.body, ErrAttemptTimeout.Error()) || int(attempts.Load()) != want {
			t.Errorf("%s: got %s after %d attempts", name, got.body, attempts.Load())
		}
	}
}

// TestWhatTheServerRefusesIsFoundAtItsLine also checks that nothing is done before.
func TestWhatTheServerRefusesIsFoundAtItsLine(t *testing.T) {
	t.Parallel()
	for want, wrong := range map[string]func(w *Context, executed *bool) error{
		"cannot be the ID": func(w *Context, executed *bool) error {
			return Exec(w, "step", func(context.Context) error { *executed = true; return nil }, ID("two words"))
		},
		"Attempts(0)": func(w *Context, executed *bool) error {
			return Exec(w, "step", func(context.Context) error { *executed = true; return nil }, Attempts(0))
		},
		"AttemptTimeout(100ms)": func(w *Context, _ *bool) error {
			return Exec(w, "step", func(context.Context) error { return nil }, AttemptTimeout(100*time.Millisecond))
		},
		"ten years": func(w *Context, _ *bool) error { return w.Sleep(20 * 365 * 24 * time.Hour) },
	} {
		executed := false
		app, _ := newTestApp(workflowOf(func(w *Context) (string, error) { return "", wrong(w, &executed) }))
		got := newFake(t, app).call(t.Context(), nil)
		if got.Error.Code != codePanic || !strings.Contains(got.Error.Message, want) || executed ||
			!strings.Contains(got.Error.Message, "attempt_test.go:") {
			t.Errorf("%s: got %s, executed: %t", want, got.body, executed)
		}
	}
}

// TestAnOutputThatIsTooLargeFailsAtOnce has a step that the server could not record.
func TestAnOutputThatIsTooLargeFailsAtOnce(t *testing.T) {
	t.Parallel()
	attempts := 0
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		_, err := Do(w, "step", func(context.Context) (string, error) {
			attempts++
			return strings.Repeat("x", longestOutput), nil
		})
		return "", err
	}))
	if got := newFake(t, app).invoke(nil); attempts != 1 || !strings.Contains(got.body, codeTooLarge) {
		t.Errorf("got %.500s after %d attempts", got.body, attempts)
	}
}

// TestARunEndsThoughAStepIgnoresIt has a race whose loser ignores its context.
func TestARunEndsThoughAStepIgnoresIt(t *testing.T) {
	t.Parallel()
	hang := make(chan bool)
	defer close(hang)
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		DoGo(w, "loser", func(context.Context) (string, error) { <-hang; return "", nil })
		return do(w, "winner", func(context.Context) (string, error) { return "won", nil })
	}))
	if got := newFake(t, app).invoke(nil); !strings.HasSuffix(got.types(), "complete") {
		t.Errorf("got %s", got.body)
	}
}
