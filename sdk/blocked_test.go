package stepwell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGoexitHoldsTheRun(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(w *Context) (string, error){
		"workflow": func(*Context) (string, error) { runtime.Goexit(); return "", nil },
		"coroutine": func(w *Context) (string, error) {
			return Go(w, "go", func(*Context) (string, error) { runtime.Goexit(); return "", nil }).Await(w)
		},
		"inline step": func(w *Context) (string, error) {
			return do(w, "step", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
		},
	} {
		app, _ := newTestApp(workflowOf(fn))
		if got := newFake(t, app).call(t.Context(), nil); got.status != 500 || !strings.Contains(got.body, "runtime.Goexit") {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
}

// misuse is a wrong use of a workflow's handle, and what the error must say; empty if it is none.
type misuse struct {
	fn   func(w *Context) (string, error)
	want string
}

// misusesElsewhere are uses by others than the handle's coroutine.
func misusesElsewhere() map[string]misuse {
	return map[string]misuse{
		"outer handle": {func(w *Context) (string, error) {
			return Go(w, "inner", func(*Context) (string, error) {
				defer func() { _ = recover() }()
				return "", w.Sleep(time.Hour)
			}).Await(w)
		}, "use the Context that it gets"},
		"goroutine": {func(w *Context) (string, error) {
			ended := make(chan bool)
			go func() {
				defer close(ended)
				_ = w.Sleep(time.Hour)
			}()
			<-ended
			return "", nil
		}, "used in another goroutine"},
		"goroutine that is waited for": {func(w *Context) (string, error) {
			result := make(chan error)
			go func() { result <- w.Sleep(time.Hour) }()
			return "", <-result
		}, "used in another goroutine"},
		"inline step": {func(w *Context) (string, error) {
			return do(w, "step", func(context.Context) (string, error) {
				defer func() { _ = recover() }()
				return "", w.Sleep(time.Hour)
			})
		}, "a step cannot ask for anything"},
	}
}

// misusesInConditions are uses in conditions, of which some may be.
func misusesInConditions() map[string]misuse {
	count := NewStoreKey[int]("count")
	twice := func(condition func(w *Context) bool) func(w *Context) (string, error) {
		return func(w *Context) (string, error) {
			w.SetAttribute("k", "v")
			n := 0
			Go(w, "go", func(w *Context) (string, error) {
				defer func() { n = 2 }()
				return do(w, "step", func(context.Context) (string, error) { return "", nil })
			})
			return "ok", w.Until(func() bool { return condition(w) && n > 1 })
		}
	}
	return map[string]misuse{
		"a condition that asks": {twice(func(w *Context) bool { w.SetAttribute("k", "v2"); return true }), "a condition has used"},
		"a condition that waits": {twice(func(w *Context) bool {
			defer func() { _ = recover() }()
			return w.Until(func() bool { return true }) == nil
		}), "a condition has used"},
		"a condition that panics": {twice(func(*Context) bool { panic("a bug") }), "a bug"},
		"a condition that panics later": {func(w *Context) (string, error) {
			var votes []int
			Go(w, "go", func(w *Context) (string, error) {
				defer func() { votes = append(votes, 1) }()
				return do(w, "step", func(context.Context) (string, error) { return "", nil })
			})
			return "", w.Until(func() bool { return len(votes) > 0 && votes[1] > 0 })
		}, "index out of range"},
		"a condition that reads": {twice(func(w *Context) bool {
			n, _ := count.Get(w)
			v, ok := w.Attribute("k")
			return n == 0 && v == "v" && ok && !w.Now().IsZero() && w.Log() != nil
		}), ""},
	}
}

// TestMisuseCannotBeHidden recovers from each misuse, or makes it in a goroutine, where a panic would end the process.
func TestMisuseCannotBeHidden(t *testing.T) {
	t.Parallel()
	all := misusesElsewhere()
	maps.Copy(all, misusesInConditions())
	for name, test := range all {
		app, _ := newTestApp(workflowOf(test.fn))
		f := newFake(t, app)
		got := f.call(t.Context(), nil)
		if got.status == http.StatusOK && !strings.Contains(got.types(), "complete") { // results are written before
			f.invoke(nil)
			got = f.call(t.Context(), nil)
		}
		if ok := got.status == http.StatusOK; ok != (test.want == "") || !strings.Contains(got.body, test.want) {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		if strings.Contains(test.want, "Context") && !strings.Contains(got.Error.Message, "blocked_test.go:") {
			t.Errorf("%s: no line in %s", name, got.Error.Message)
		}
	}
}

// TestResultsAreKeptThoughTheRunIsBlocked checks that inline steps do not happen again with each call of a run that is
// blocked.
func TestResultsAreKeptThoughTheRunIsBlocked(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *Context) error{
		"panic": func(*Context) error { panic("a bug") },
		"block": func(*Context) error { return Block(errors.New("a bug")) },
		"misuse": func(w *Context) error {
			_, err := Go(w, "go", func(*Context) (None, error) { return None{}, w.Sleep(1) }).Await(w)
			return err
		},
	} {
		executed := 0
		app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
			_, _ = do(w, "charge", func(context.Context) (string, error) { executed++; return "", nil })
			return "", end(w)
		}))
		f := newFake(t, app)
		if got := f.invoke(nil); got.types() != "recordStep charge" || got.Await != nil {
			t.Errorf("%s: the answer is %s", name, got.body)
		}
		for f.attempt = range 4 {
			if got := f.call(t.Context(), nil); got.status != http.StatusInternalServerError || executed != 1 {
				t.Errorf("%s: got %s, and the step happened %d times", name, got.body, executed)
			}
		}
	}
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		_, _ = do(w, "charge", func(context.Context) (string, error) { return "", nil })
		panic("a bug")
	}, FailOnPanic()))
	if got := newFake(t, app).invoke(nil); got.types() != "recordStep charge, fail" {
		t.Errorf("fail: the answer is %s", got.body)
	}
}

// TestWorkflowThatNeverWaitsIsAnswered has workflows that do not wait until the end of the call. Those that use their
// handle are ended.
func TestWorkflowThatNeverWaitsIsAnswered(t *testing.T) {
	t.Parallel()
	block, left := make(chan bool), make(chan bool)
	for name, fn := range map[string]func(w *Context) (string, error){
		"blocks": func(*Context) (string, error) {
			defer close(left)
			<-block
			return "", nil
		},
		"spins": func(w *Context) (string, error) {
			for {
				w.SetAttribute("k", w.UUID())
			}
		},
	} {
		app, _ := newTestApp(workflowOf(fn))
		f := newFake(t, app)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		got := f.call(ctx, nil)
		cancel()
		if got.Error.Code != codeStuck || !strings.Contains(got.body, "blocked_test.go") {
			t.Errorf("%s: got %s", name, got.body)
		}
	}
	close(block)
	<-left
}

// TestWorkflowThatNeverWaitsIsBlockedSoon has a workflow that blocks in a call that has minutes left.
func TestWorkflowThatNeverWaitsIsBlockedSoon(t *testing.T) {
	t.Parallel()
	block := make(chan bool)
	defer close(block)
	app, _ := newTestApp(workflowOf(func(*Context) (string, error) { <-block; return "", nil }))
	if got := newFake(t, app).call(t.Context(), nil); got.Error.Code != codeStuck {
		t.Errorf("got %s", got.body)
	}
}

// TestAResultThatNoLongerDecodesBlocksTheRun has a result in the log whose type the code has changed, at the end of the
// log and with more after it.
func TestAResultThatNoLongerDecodesBlocksTheRun(t *testing.T) {
	t.Parallel()
	type payment struct{ Cents string }
	pay := NewStep[string, payment]("pay", Remote())
	for _, more := range []bool{false, true} {
		app, _ := newTestApp(pay.Bind(func(context.Context, string) (payment, error) { return payment{}, nil }),
			workflowOf(func(w *Context) (string, error) {
				paid, err := pay.Run(w, "in")
				return paid.Cents, errors.Join(err, w.Sleep(time.Hour))
			}, FailOnPanic()))
		f := newFake(t, app)
		f.invoke(nil)
		f.happen("step_completed", "pay", map[string]int{"Cents": 5})
		if more {
			f.happen("wait_created", "wait", nil)
		}
		got := f.call(t.Context(), nil)
		if got.status != http.StatusInternalServerError || got.Error.Code != codeUndecodable {
			t.Errorf("got %d %s", got.status, got.body)
		}
		for _, part := range []string{"pay", "field Cents", "JSON number", "of type string", "payment", "blocked_test.go:"} {
			if !strings.Contains(got.Error.Message, part) {
				t.Errorf("%q does not mention %q", got.Error.Message, part)
			}
		}
	}
}

func TestInterceptorThatPanicsFailsTheAttempt(t *testing.T) {
	t.Parallel()
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "step", func(context.Context) (string, error) { return "", nil }, Attempts(1))
	}))
	app.serving.aroundSteps = append(app.serving.aroundSteps,
		func(context.Context, StepInfo, func(context.Context) error) error { panic("a bug") })
	if got := newFake(t, app).invoke(nil); got.types() != "recordStep step, fail" || !strings.Contains(got.body, "a bug") {
		t.Errorf("got %s", got.body)
	}
}

// TestValueIsNotBlamedForCrashes calls a workflow more often than a step is tried. An error of a value would stay for
// ever.
func TestValueIsNotBlamedForCrashes(t *testing.T) {
	t.Parallel()
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return Value(w, "token", func() string { return "secret" }), nil
	}))
	f := newFake(t, app)
	for f.attempt = 2; f.attempt < 9; f.attempt++ {
		f.answerWrites(500)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.call(ctx, nil) // dies
		f.answerWrites(0)
		f.happen("step_retrying", "token", failure{Code: codeCrashed})
	}
	if got := f.invoke(nil); !strings.Contains(got.body, `"output":"secret"`) {
		t.Errorf("got %s", got.body)
	}
}

// TestKeptLoggerSpeaksWhenTheWorkflowDoes makes a logger in a replay.
func TestKeptLoggerSpeaksWhenTheWorkflowDoes(t *testing.T) {
	t.Parallel()
	app, lines := newTestApp(workflowOf(func(w *Context) (string, error) {
		log := w.Log().With("kept", true)
		log.Info("begins")
		for _, name := range []string{"a", "b"} {
			_, _ = do(w, name, func(context.Context) (string, error) { return "", nil })
			log.Info("has done " + name)
		}
		return "", nil
	}))
	f := newFake(t, app)
	app.serving.server = ""
	first := f.invoke(nil)
	f.invoke(map[string]any{"known": 1})
	if got := lines.String(); first.types() != "recordStep a" || strings.Count(got, "kept=true") != 3 ||
		strings.Count(got, `msg="has done b"`) != 1 {
		t.Errorf("after %s: %s", first.types(), got)
	}
}

// TestPatchIsTakenThoughMoreEventsAreKnown takes a patch between messages that are all there already.
func TestPatchIsTakenThoughMoreEventsAreKnown(t *testing.T) {
	t.Parallel()
	hook := NewHook[int]("hook")
	patched, old := []int{}, true
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		h := hook.Open(w, Token("t"))
		patched = patched[:0]
		for range 4 {
			n, err := h.Receive(w)
			if err != nil {
				return "", err
			}
			if !old && w.Scope(fmt.Sprint(n)).Patched("audit") {
				patched = append(patched, n)
			}
		}
		return "", nil
	}))
	app.serving.kept.bytes = 0
	f := newFake(t, app)
	f.invoke(nil)
	f.happen("hook_received", "hook", 1)
	f.invoke(nil)
	known := len(f.events(0))
	for n := range 3 {
		f.happen("hook_received", "hook", n+2)
	}
	old = false
	got := f.invoke(map[string]any{"known": known})
	if !slices.Equal(patched, []int{2, 3, 4}) || !strings.HasSuffix(got.types(), "complete") {
		t.Errorf("the patch was taken for messages %v: %s", patched, got.types())
	}
	before := slices.Clone(patched)
	f.call(t.Context(), map[string]any{"known": len(f.events(0))})
	if !slices.Equal(patched, before) {
		t.Errorf("again, it was taken for messages %v", patched)
	}
}

// TestPatchIsNotTakenBeforeALostStep: old code began an inline step in an invocation that died, so the log has nothing
// of the step, but the event written meanwhile names it.
func TestPatchIsNotTakenBeforeALostStep(t *testing.T) {
	t.Parallel()
	hook := NewHook[int]("hook")
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		hook.Open(w, Token("t"))
		if w.Patched("p") {
			return "patched", nil
		}
		_, err := Do(w, "slow", func(context.Context) (int, error) { return 1, nil })
		return "old", err
	}))
	for _, open := range [][]string{{"slow"}, nil} {
		f := newFake(t, app)
		f.append(map[string]any{
			"type": "hook_created", "correlationId": "hook", "data": map[string]any{"token": "t", "open": open},
		})
		got := f.invoke(map[string]any{"known": 1})
		if ranSlow := strings.Contains(got.types(), "slow"); ranSlow != (open != nil) {
			t.Errorf("open %v: %s", open, got.types())
		}
	}
}
