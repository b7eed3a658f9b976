package tests

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	checkedOrder = stepwell.NewWorkflow[string, string]("order")
	checkCharge  = stepwell.NewStep[string, string]("charge")
	checkShip    = stepwell.NewStep[string, string]("ship", stepwell.Remote())
	checkGone    = stepwell.NewWorkflow[string, string]("gone")
)

// checkedRuns is the answer to a check.
type checkedRuns struct {
	Checked, Replayed, Diverged, Blocked, Unchecked int

	Runs []struct{ RunID, Verdict, Code, Message string }
	More bool
}

// newBuild serves an app whose calls are signed with the key, and returns its address. It is registered nowhere.
func (s *server) newBuild(t *testing.T, key string, c stepwell.AppConfig, definitions ...stepwell.Definition) string {
	t.Helper()
	c.Name, c.Server, c.SigningKeys = "next", s.url(), key
	app := stepwell.NewApp(c)
	app.Register(definitions...)
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	function := httptest.NewServer(h)
	t.Cleanup(function.Close)
	return function.URL
}

// check replays the open runs of the deployment with the code at the address.
func (s *server) check(t *testing.T, body map[string]any) (found checkedRuns) {
	t.Helper()
	s.admin(t, http.MethodPost, "/v1/deployments/tests/check", body, &found)
	return found
}

// orderOf is the workflow with a first step, and what it does within a call before it ships.
func orderOf(charge *stepwell.Step[string, string], within func()) stepwell.Definition {
	return checkedOrder.Bind(func(w *stepwell.Context, in string) (string, error) {
		paid, err := charge.Run(w, in)
		if err != nil {
			return "", err
		}
		sent := checkShip.Go(w, paid)
		if within != nil {
			_, err := stepwell.Do(w, "label", func(context.Context) (string, error) { within(); return "", nil })
			if err != nil {
				return "", err
			}
		}
		return sent.Await(w)
	})
}

// TestOpenRunsAreCheckedOnTheNextBuild before they are continued there. A check writes nothing, and executes nothing that
// the new code comes to.
func TestOpenRunsAreCheckedOnTheNextBuild(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key := s.signingKey(t)
	release := make(chan struct{})
	var once sync.Once
	ship := checkShip.Bind(func(_ context.Context, in string) (string, error) {
		<-release
		return in + " shipped", nil
	})
	charge := checkCharge.Bind(func(_ context.Context, in string) (string, error) { return in + " paid", nil })
	waits := checkGone.Bind(func(w *stepwell.Context, in string) (string, error) { return checkShip.Run(w, in) })
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	old := s.newBuild(t, key, stepwell.AppConfig{}, charge, ship, orderOf(checkCharge, nil), waits)
	s.admin(t, http.MethodPut, "/v1/deployments/tests", map[string]any{"url": old}, nil)
	client := s.client(t, "write")
	run, err := checkedOrder.Start(t.Context(), client, "teapot")
	if err != nil {
		t.Fatal(err)
	}
	other, err := checkGone.Start(t.Context(), client, "teapot")
	if err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, run, "step_started")
	awaitEvent(t, other, "step_started")
	before := [][]logged{s.logOf(t, run.ID()), s.logOf(t, other.ID())}

	if got := s.check(t, map[string]any{}); got.Checked != 2 || got.Replayed != 2 || len(got.Runs) != 0 {
		t.Errorf("its own code: got %+v, want that both replay", got)
	}
	var labels, seen atomic.Int64
	intercept := func(ctx context.Context, _ stepwell.InvocationInfo, next func(context.Context) error) error {
		seen.Add(1)
		return next(ctx)
	}
	next := s.newBuild(t, key, stepwell.AppConfig{InterceptInvocations: []func(context.Context, stepwell.InvocationInfo,
		func(context.Context) error) error{intercept}}, charge, ship, orderOf(checkCharge, func() { labels.Add(1) }))
	got := s.check(t, map[string]any{"url": next})
	if got.Replayed != 1 || got.Blocked != 1 || got.Runs[0].RunID != other.ID() || got.Runs[0].Code != "unknown_workflow" {
		t.Errorf("the next code: got %+v, want that only the workflow that it lacks does not replay", got)
	}
	if labels.Load() != 0 || seen.Load() != 0 {
		t.Errorf("a check executed %d steps and %d invocations", labels.Load(), seen.Load())
	}
	pay := stepwell.NewStep[string, string]("pay")
	wrong := s.newBuild(t, key, stepwell.AppConfig{}, pay.Bind(func(_ context.Context, in string) (string, error) {
		labels.Add(1)
		return in, nil
	}), ship, orderOf(pay, nil), waits)
	got = s.check(t, map[string]any{"url": wrong})
	if got.Diverged != 1 || got.Replayed != 1 || got.Runs[0].RunID != run.ID() || got.Runs[0].Verdict != "diverges" ||
		!strings.Contains(got.Runs[0].Message, "charge") {
		t.Errorf("the wrong code: got %+v, want that the order diverges", got)
	}
	if got := s.check(t, map[string]any{"url": wrong, "limit": 1}); got.Checked != 1 || !got.More {
		t.Errorf("one run of two: got %+v", got)
	}
	after := [][]logged{s.logOf(t, run.ID()), s.logOf(t, other.ID())}
	if !reflect.DeepEqual(before, after) || labels.Load() != 0 {
		t.Errorf("the checks left %v of %v, and executed %d steps", after, before, labels.Load())
	}

	s.admin(t, http.MethodPatch, "/v1/deployments/tests", map[string]any{"url": next}, nil)
	once.Do(func() { close(release) })
	if out, err := run.Wait(t.Context()); err != nil || out != "teapot paid shipped" || labels.Load() != 1 {
		t.Errorf("got %q, %v and %d labels; want that the run goes on", out, err, labels.Load())
	}
}

// TestOnlyWhatKnowsChecksIsCalled: another function would take a check for an invocation, and execute what it comes to.
func TestOnlyWhatKnowsChecksIsCalled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var called atomic.Int64
	naive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); r.Method != http.MethodOptions || len(body) > 0 {
			called.Add(1)
		}
		_, _ = io.WriteString(w, `{"commands": [{"type": "wait", "id": "w", "for": "1h"}]}`)
	}))
	t.Cleanup(naive.Close)
	s.serve(t, checkedOrder.Bind(func(w *stepwell.Context, _ string) (string, error) {
		return "", w.Sleep(1 << 40)
	}))
	if _, err := checkedOrder.Start(t.Context(), s.client(t, "write"), "teapot"); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, test := range map[string]struct {
		key    string
		body   map[string]any
		status int
		code   string
	}{
		"knows none":     {adminKey, map[string]any{"url": naive.URL}, 409, "check_refused"},
		"is away":        {adminKey, map[string]any{"url": gone.URL}, 409, "check_refused"},
		"no URL":         {adminKey, map[string]any{"url": "pull:"}, 400, "invalid_request"},
		"forbidden host": {adminKey, map[string]any{"url": "http://169.254.169.254/"}, 400, "invalid_request"},
		"too many":       {adminKey, map[string]any{"limit": 101}, 400, "invalid_request"},
	} {
		got, err := s.request(t.Context(), test.key, http.MethodPost, "/v1/deployments/tests/check", test.body, nil)
		if err != nil || got.status != test.status || !strings.Contains(string(got.body), `"`+test.code+`"`) {
			t.Errorf("%s: got %v %v, want %d %s", name, got, err, test.status, test.code)
		}
	}
	if n := called.Load(); n > 0 {
		t.Errorf("the function that knows no checks was called %d times", n)
	}
}
