package stepwell

import (
	"context"
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
	for name, run := range map[string]func(*W, func(context.Context) (string, error)) (string, error){
		"Do": func(w *W, fn func(context.Context) (string, error)) (string, error) {
			return Do(w, "step", fn, AttemptTimeout(time.Millisecond), Attempts(2), Backoff(time.Millisecond, time.Millisecond))
		},
		"a step": func(w *W, _ func(context.Context) (string, error)) (string, error) {
			return DeclareStep[string, string]("step").Run(w, "", AttemptTimeout(time.Millisecond), Attempts(1))
		},
	} {
		var attempts atomic.Int32
		fn := func(context.Context) (string, error) {
			attempts.Add(1)
			<-hang
			return "", nil
		}
		step := DeclareStep[string, string]("step")
		app, _ := newTestApp(workflowOf(func(w *W) (string, error) { return run(w, fn) }),
			step.Bind(func(ctx context.Context, _ string) (string, error) { return fn(ctx) }))
		want := map[string]int{"Do": 2, "a step": 1}[name]
		if got := newFake(t, app).invoke(nil); !strings.HasSuffix(got.types(), "recordStep step, fail") ||
			!strings.Contains(got.body, ErrAttemptTimeout.Error()) || int(attempts.Load()) != want {
			t.Errorf("%s: got %s after %d attempts", name, got.body, attempts.Load())
		}
	}
}

// TestARunEndsThoughAStepIgnoresIt has a race whose loser ignores its context.
func TestARunEndsThoughAStepIgnoresIt(t *testing.T) {
	t.Parallel()
	hang := make(chan bool)
	defer close(hang)
	app, _ := newTestApp(workflowOf(func(w *W) (string, error) {
		DoGo(w, "loser", func(context.Context) (string, error) { <-hang; return "", nil })
		return do(w, "winner", func(context.Context) (string, error) { return "won", nil })
	}))
	if got := newFake(t, app).invoke(nil); !strings.HasSuffix(got.types(), "complete") {
		t.Errorf("got %s", got.body)
	}
}
