package stepwell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// workflowOf returns a workflow named test.
func workflowOf(fn func(w *Context) (string, error), options ...WorkflowOption) Definition {
	return NewWorkflow[string, string]("test", options...).Bind(func(w *Context, _ string) (string, error) { return fn(w) })
}

func do(w *Context, name string, fn func(context.Context) (string, error), options ...DoOption) (string, error) {
	return Do(w, name, fn, options...)
}

// TestResultsAreOnDisk looks into the log from the second of two inline steps.
func TestResultsAreOnDisk(t *testing.T) {
	t.Parallel()
	plain := func(w *Context) { _, _ = do(w, "first", func(context.Context) (string, error) { return "x", nil }) }
	value := func(w *Context) { Value(w, "first", func() string { return "x" }) }
	for name, test := range map[string]struct {
		first   func(*Context)
		options []WorkflowOption
		onDisk  bool
		writes  int // during calls
		noHost  bool
		calls   int
	}{
		"each":                    {plain, nil, true, 1, false, 1},
		"each, without a server":  {plain, nil, true, 0, true, 2},
		"batch":                   {plain, []WorkflowOption{BatchResults()}, false, 0, false, 1},
		"batch, without a server": {plain, []WorkflowOption{BatchResults()}, false, 0, true, 1},
		"batch, a value":          {value, []WorkflowOption{BatchResults()}, true, 1, false, 1},
		"batch, a value, alone":   {value, []WorkflowOption{BatchResults()}, true, 0, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fake
			onDisk := false
			app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
				test.first(w)
				return do(w, "second", func(context.Context) (string, error) {
					onDisk = f.has("step_completed first")
					return "y", nil
				})
			}, test.options...))
			f = newFake(t, app)
			if test.noHost {
				app.serving.server = ""
			}
			calls, got := 0, called{}
			for calls = 0; !strings.Contains(got.types(), "complete"); calls++ {
				got = f.invoke(nil)
			}
			if onDisk != test.onDisk || f.written() != test.writes || calls != test.calls {
				t.Errorf("on disk %t, %d writes, %d calls", onDisk, f.written(), calls)
			}
		})
	}
}

func TestRemoteWorkBeginsWhileInlineWorkGoesOn(t *testing.T) {
	t.Parallel()
	var f *fake
	remote := NewStep[string, string]("remote")
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		remote.Go(w, "x")
		return do(w, "inline", func(context.Context) (string, error) { return fmt.Sprint(f.has("step_created remote")), nil })
	}, BatchResults()))
	f = newFake(t, app)
	if got := f.invoke(nil); got.Commands[len(got.Commands)-1]["output"] != "true" {
		t.Errorf("got %v", got.Commands)
	}
}

func TestFirstAttemptIsInlineAndOthersRemote(t *testing.T) {
	t.Parallel()
	attempts := 0
	step := NewStep[string, string]("step", Backoff(2*time.Second, time.Minute))
	bound := step.Bind(func(ctx context.Context, in string) (string, error) {
		attempts++
		if in == "bad" {
			return "", RetryAfter(errors.New("busy"), time.Minute)
		}
		return in + IdempotencyKey(ctx), nil
	})
	for name, test := range map[string]struct {
		input   string
		options []StepOption
		attempt int
		want    string
		calls   int // of the step
	}{
		"it succeeds":             {"good", nil, 1, "recordStep step, complete", 1},
		"it fails":                {"bad", nil, 1, "runStep step", 1},
		"its only attempt":        {"bad", []StepOption{Attempts(1)}, 1, "recordStep step, complete", 1},
		"remote":                  {"good", []StepOption{Remote()}, 1, "runStep step", 0},
		"a limit of all attempts": {"good", []StepOption{Timeout(time.Hour)}, 1, "runStep step", 0},
		"on another deployment":   {"good", []StepOption{Deployment("other")}, 1, "runStep step", 0},
		"too little time is left": {"good", []StepOption{AttemptTimeout(time.Hour)}, 1, "runStep step", 0},
		"a call has failed":       {"good", nil, 2, "runStep step", 0},
	} {
		app, _ := newTestApp(bound, workflowOf(func(w *Context) (string, error) {
			out, err := step.Run(w, test.input, test.options...)
			if err != nil {
				return "failed", nil //nolint:nilerr // the workflow goes on
			}
			return out, nil
		}))
		f := newFake(t, app)
		f.attempt, attempts = test.attempt, 0
		got := f.invoke(nil)
		if got.types() != test.want || attempts != test.calls {
			t.Errorf("%s: got %s after %d attempts", name, got.types(), attempts)
		}
		first, _ := got.Commands[0]["firstAttempt"].(map[string]any)
		if (first != nil) != (name == "it fails") || first != nil && first["retryAfter"] != "1m0s" {
			t.Errorf("%s: the first attempt is %v", name, first)
		}
	}
}

func TestDoIsTriedAgainByLaterCalls(t *testing.T) {
	t.Parallel()
	var attempts []int
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "step", func(ctx context.Context) (string, error) {
			attempts = append(attempts, Info(ctx).Attempt)
			return "", errors.New("busy")
		}, Attempts(4), Backoff(time.Millisecond, time.Hour))
	}))
	f := newFake(t, app)
	app.serving.pauses = 2 * time.Millisecond // the first pause fits, but not the second one after it
	if got := f.invoke(nil); got.types() != "recordStep step, recordStep step" || got.Await != nil {
		t.Fatalf("got %s, await %v, attempts %v", got.body, got.Await, attempts)
	}
	if got := f.invoke(nil); got.types() != "recordStep step" || got.Commands[0]["retryAfter"] != "4ms" {
		t.Fatalf("got %v", got.Commands)
	}
	got := f.invoke(nil)
	if got.types() != "recordStep step, fail" || fmt.Sprint(attempts) != "[1 2 3 4]" {
		t.Errorf("got %s after the attempts %v", got.types(), attempts)
	}
	f.log = f.log[:len(f.log)-1]
	f.log[len(f.log)-1]["data"].(map[string]any)["retryAfter"] = time.Now().Add(time.Hour)
	if got := f.invoke(nil); got.types() != "" || len(attempts) != 4 {
		t.Errorf("before its time: got %s after the attempts %v", got.types(), attempts)
	}
}

// TestDoThatKillsItsProcessFails makes calls whose connection ends during the step: nothing comes back.
func TestDoThatKillsItsProcessFails(t *testing.T) {
	t.Parallel()
	var die context.CancelFunc
	var causes []error
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "step", func(ctx context.Context) (string, error) {
			die()
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return "", context.Cause(ctx)
		}, Attempts(2))
	}))
	f := newFake(t, app)
	for f.attempt = 1; f.attempt <= 3; f.attempt++ {
		var ctx context.Context
		ctx, die = context.WithCancel(t.Context())
		if got := f.call(ctx, nil); got.status != http.StatusConflict {
			t.Errorf("call %d was answered %d %s", f.attempt, got.status, got.body)
		}
		die()
	}
	got := f.invoke(nil)
	if got.types() != "recordStep step, fail" || got.Commands[0]["error"].(map[string]any)["code"] != codeCrashed {
		t.Errorf("got %v", got.Commands)
	}
	if len(causes) != 3 || errors.Join(causes...) == nil || !errors.Is(causes[2], ErrRunEnded) {
		t.Errorf("the step was executed with the causes %v", causes)
	}
	if want := "step_created step, step_retrying step, step_retrying step, step_failed step"; f.types() != want {
		t.Errorf("the log has %s", f.types())
	}
}

func TestStaleCallEndsItsSteps(t *testing.T) {
	t.Parallel()
	var cause error
	app, lines := newTestApp(workflowOf(func(w *Context) (string, error) {
		long := DoGo(w, "long", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return "", cause
		})
		if _, err := do(w, "short", func(context.Context) (string, error) { return "x", nil }); err != nil {
			return "", err
		}
		if _, err := do(w, "next", func(context.Context) (string, error) { return "y", nil }); err != nil {
			return "", err
		}
		return long.Await(w)
	}))
	f := newFake(t, app)
	for _, status := range []int{http.StatusConflict, http.StatusGone} {
		f.answerWrites(status)
		cause = nil
		got := f.call(t.Context(), nil)
		if got.status != http.StatusConflict || !errors.Is(cause, ErrRunEnded) || lines.Len() > 0 {
			t.Errorf("%d: answered %d, the step's context ended with %v, logged %s", status, got.status, cause, lines)
		}
	}
}

func TestCausesOfContexts(t *testing.T) {
	t.Parallel()
	causes := map[string]error{}
	wait := func(ctx context.Context, in string) (string, error) {
		<-ctx.Done()
		causes[in] = context.Cause(ctx)
		return "", Permanent(context.Cause(ctx))
	}
	step := NewStep[string, string]("step")
	app, _ := newTestApp(step.Bind(wait), workflowOf(func(w *Context) (string, error) {
		return step.Run(w, "inline", AttemptTimeout(time.Second), Attempts(1))
	}))
	f := newFake(t, app)
	f.invoke(nil)
	ctx, closeConnection := context.WithCancel(t.Context())
	closeConnection()
	f.call(ctx, map[string]any{"type": "step", "step": map[string]any{"id": "s", "name": "step", "input": "closed"}})
	f.call(t.Context(), map[string]any{"type": "step", "step": map[string]any{
		"id": "s", "name": "step", "input": "late", "deadline": time.Now().Add(-time.Second),
	}})
	for in, want := range map[string]error{
		"inline": ErrAttemptTimeout, "closed": ErrStepCancelled, "late": ErrAttemptTimeout,
	} {
		if !errors.Is(causes[in], want) {
			t.Errorf("%s: got %v", in, causes[in])
		}
	}
}

func TestACancelledInlineStepIsTold(t *testing.T) {
	t.Parallel()
	began, cause := make(chan struct{}), error(nil)
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		loser := DoGo(w, "loser", func(ctx context.Context) (string, error) {
			close(began)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return "", cause
		})
		winner := DoGo(w, "winner", func(context.Context) (string, error) {
			<-began
			return "x", nil
		})
		same := func(_ *Context, out string) (string, error) { return out, nil }
		return Select(w, On(loser, same), On(winner, same))
	}))
	f := newFake(t, app)
	got := f.invoke(nil)
	if !errors.Is(cause, ErrStepCancelled) || !strings.Contains(cause.Error(), "something else came first") {
		t.Errorf("the step's context ended with %v", cause)
	}
	if !strings.Contains(got.types(), "complete") {
		t.Errorf("got %s", got.body)
	}
}

// TestAStepThatOutlivesItsRunIsTold why its context ends.
func TestAStepThatOutlivesItsRunIsTold(t *testing.T) {
	t.Parallel()
	began, cause := make(chan struct{}), error(nil)
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		DoGo(w, "slow", func(ctx context.Context) (string, error) {
			close(began)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return "", cause
		})
		return do(w, "quick", func(context.Context) (string, error) {
			<-began
			return "x", nil
		})
	}))
	if got := newFake(t, app).invoke(nil); !strings.HasSuffix(got.types(), "complete") || !errors.Is(cause, ErrRunEnded) {
		t.Errorf("the step's context ended with %v; the call was answered %s", cause, got.body)
	}
}

func TestMissingFeatureIsNamed(t *testing.T) {
	t.Parallel()
	app, _ := newTestApp(workflowOf(func(*Context) (string, error) { return "", nil }))
	f := newFake(t, app)
	f.features = []string{"at"}
	if got := f.call(t.Context(), nil); got.Error.Code != codeUnsupported || !strings.Contains(got.Error.Message, "seen") {
		t.Errorf("got %s", got.body)
	}
}

func TestPanicPolicies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options []WorkflowOption
		status  int
	}{{nil, http.StatusInternalServerError}, {[]WorkflowOption{FailOnPanic()}, http.StatusOK}} {
		app, _ := newTestApp(workflowOf(func(*Context) (string, error) { panic("a bug") }, test.options...))
		f := newFake(t, app)
		got := f.call(t.Context(), nil)
		if got.status != test.status || !strings.Contains(got.body, `"code":"panic"`) || !strings.Contains(got.body, "serve_test.go") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}

func TestStepInsideAStepIsRefused(t *testing.T) {
	t.Parallel()
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "outer", func(context.Context) (string, error) {
			return do(w, "inner", func(context.Context) (string, error) { return "", nil })
		})
	}))
	f := newFake(t, app)
	got := f.call(t.Context(), nil)
	if got.Error.Code != codeMisuse || strings.Count(got.Error.Message, "serve_test.go:") != 1 ||
		!strings.Contains(got.Error.Message, "a step cannot ask for anything") {
		t.Errorf("got %s", got.body)
	}
}

func TestInterceptorsAreAroundStepsAndCalls(t *testing.T) {
	t.Parallel()
	type added struct{}
	var trace []string
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "step", func(ctx context.Context) (string, error) {
			trace = append(trace, fmt.Sprint("step has ", ctx.Value(added{})))
			return "", nil
		})
	}))
	app.serving.aroundInvocations = []func(context.Context, InvocationInfo, func(context.Context) error) error{
		func(ctx context.Context, i InvocationInfo, next func(context.Context) error) error {
			trace = append(trace, fmt.Sprint("invocation ", i.Run.ID, i.Attempt, i.Events))
			return next(context.WithValue(ctx, added{}, "it"))
		},
	}
	app.serving.aroundSteps = []func(context.Context, StepInfo, func(context.Context) error) error{
		func(ctx context.Context, i StepInfo, next func(context.Context) error) error {
			trace = append(trace, fmt.Sprint("outer ", i.Name, i.Attempt, i.Inline))
			return next(ctx)
		},
		func(ctx context.Context, _ StepInfo, next func(context.Context) error) error {
			trace = append(trace, "inner")
			return next(ctx)
		},
	}
	newFake(t, app).invoke(nil)
	if got := strings.Join(trace, ", "); got != "invocation wrun_11 1, outer step1 true, inner, step has it" {
		t.Errorf("got %s", got)
	}
}

func TestCopiesOfACallShareItsExecution(t *testing.T) {
	t.Parallel()
	var f *fake
	executed := 0
	again := make(chan called)
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		return do(w, "step", func(context.Context) (string, error) {
			executed++
			go func() { again <- f.call(t.Context(), nil) }()
			for !f.app.serving.underWay.waited() {
				runtime.Gosched()
			}
			return fmt.Sprint(executed), nil
		})
	}))
	f = newFake(t, app)
	first := f.call(t.Context(), nil)
	if second := <-again; executed != 1 || first.body != second.body {
		t.Errorf("executed %d times, with the answers\n%s\n%s", executed, first.body, second.body)
	}
}

// TestManyCommandsAreWrittenInParts asks for more than the server takes at once.
func TestManyCommandsAreWrittenInParts(t *testing.T) {
	t.Parallel()
	step := NewStep[int, int]("step")
	for name, test := range map[string]struct {
		fn     func(w *Context)
		writes int
	}{
		"at one rest": {func(w *Context) {
			for i := range 2500 {
				step.Go(w, i)
			}
			w.Sleep(time.Hour)
		}, 3},
		"one by one": {func(w *Context) {
			for range 1100 {
				_, _ = do(w, "step", func(context.Context) (string, error) { return "x", nil })
			}
		}, 2},
	} {
		app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
			test.fn(w)
			return "", nil
		}, BatchResults()))
		f := newFake(t, app)
		if got := f.invoke(nil); len(got.Commands) > 1000 || f.written() != test.writes {
			t.Errorf("%s: %d commands in the answer, %d writes", name, len(got.Commands), f.written())
		}
	}
}

// TestAShutdownFailsNoStep cuts an inline step short while the workflow is busy, several times: afterwards its end and
// that of the call are seen in either order. The run goes on in another process, so the step must not have failed.
func TestAShutdownFailsNoStep(t *testing.T) {
	t.Parallel()
	for range 50 {
		ended := make(chan struct{})
		var app *App
		app, _ = newTestApp(workflowOf(func(w *Context) (string, error) {
			slow := DoGo(w, "slow", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				close(ended)
				return "", context.Cause(ctx)
			}, Attempts(1))
			_, _ = do(w, "quick", func(context.Context) (string, error) { return "", nil })
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			go func() { _ = app.Shutdown(ctx) }()
			<-ended
			for range 100 { // until its result is there, most of the time
				runtime.Gosched()
			}
			return slow.Await(w)
		}))
		f := newFake(t, app)
		// The result of the quick step may be in the answer, and is then not lost.
		got := f.call(t.Context(), nil)
		if got.status != http.StatusOK && (got.status != http.StatusServiceUnavailable || got.Error.Code != "shutdown") {
			t.Fatalf("the call was answered %d %s", got.status, got.body)
		}
		if f.has("step_failed") {
			t.Fatalf("the log has %s", f.types())
		}
	}
}
