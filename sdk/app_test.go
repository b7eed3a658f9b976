package stepwell_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type (
	encodesOnly struct{}
	asText      struct{ A, B int }
)

func (encodesOnly) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

func (asText) MarshalText() ([]byte, error) { return []byte("a"), nil }

func (*asText) UnmarshalText([]byte) error { return nil }

func bound[I, O any](name string) stepwell.Definition {
	return stepwell.NewStep[I, O](name).Bind(func(context.Context, I) (O, error) { return *new(O), nil })
}

func TestAllProblemsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "the shop", Server: "shop:8788", Unsigned: "a test"})
	app.Register(
		bound[string, time.Time]("fine"),
		bound[map[asText]int, *asText]("fine-too"),
		bound[any, json.RawMessage]("anything"),
		bound[string, string]("twice"),
		bound[string, string]("twice"),
		bound[string, string]("a/b"),
		bound[string, string](""),
		bound[chan int, func()]("no-data"),
		bound[struct{ Err error }, encodesOnly]("one-way"),
		bound[map[struct{ A int }]int, struct{ hidden int }]("lost"),
		stepwell.NewWorkflow[string, string]("inbox", stepwell.WithInbox(stepwell.NewInbox[chan int]("in"))).Bind(
			func(*stepwell.Context, string) (string, error) { return "", nil }),
	)
	_, err := app.Handler()
	if err == nil {
		t.Fatal("a handler was made")
	}
	for _, want := range []string{
		`app "the shop": the name has characters`,
		`two functions are bound to step "twice"`,
		`step "a/b": the name has characters`,
		`step "": the name must have`,
		`step "no-data": the input chan int cannot be kept in the log: it contains a chan`,
		`step "no-data": the output func() cannot be kept in the log: it contains a func`,
		`step "one-way": the input struct { Err error } cannot be kept in the log: field Err: it contains the interface`,
		`step "one-way": the output stepwell_test.encodesOnly cannot be kept in the log: stepwell_test.encodesOnly has`,
		`step "lost": the input map[struct { A int }]int cannot be kept in the log: it contains a map whose keys`,
		`step "lost": the output struct { hidden int } cannot be kept in the log: struct { hidden int } has no exported`,
		`workflow "inbox": the messages chan int of inbox "in" cannot be kept in the log: it contains a chan`,
		`the server of AppConfig or STEPWELL_URL: "shop:8788" is not the address of a server`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it is not refused that\n%s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 12 {
		t.Errorf("%d problems instead of 12:\n%v", n, err)
	}
}

func TestHandlerRefusesToBeMadeOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []stepwell.AppConfig{{}, {SigningKeys: signingKey, Unsigned: "a test"}} {
		c.Name = "shop"
		if _, err := stepwell.NewApp(c).Handler(); err == nil {
			t.Errorf("a handler was made with %+v", c)
		}
	}
}

// signingKey is a valid key.
const signingKey = "swsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func TestSigningKeysOfTheEnvironment(t *testing.T) {
	t.Setenv("STEPWELL_SIGNING_KEYS", signingKey)
	for reason, status := range map[string]int{"": http.StatusUnauthorized, "a test": http.StatusBadRequest} {
		h, err := stepwell.NewApp(stepwell.AppConfig{Name: "shop", Unsigned: reason}).Handler()
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != status {
			t.Errorf("an empty call without a signature, and Unsigned %q: got %d %s", reason, w.Code, w.Body)
		}
	}
}

// slow is an app whose step says when it begins, and ends with its context or when it may.
func slow(t *testing.T) (app *stepwell.App, h http.Handler, began chan struct{}, finish chan struct{}) {
	t.Helper()
	began, finish = make(chan struct{}), make(chan struct{})
	app = stepwell.NewApp(stepwell.AppConfig{Name: "shop", Unsigned: "a test", Logger: slog.New(slog.DiscardHandler)})
	app.Register(stepwell.NewStep[string, string]("slow").Bind(
		func(ctx context.Context, _ string) (string, error) {
			began <- struct{}{}
			select {
			case <-finish:
				return "finished", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}))
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return app, h, began, finish
}

func callStep(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(`{"type":"step","run":{"id":"wrun_1"},"step":{"id":"slow","name":"slow","input":"x"}}`)))
	return w
}

func TestAShutdownLetsCallsFinish(t *testing.T) {
	t.Parallel()
	app, h, began, finish := slow(t)
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- callStep(h) }()
	<-began
	done := make(chan error)
	go func() { done <- app.Shutdown(t.Context()) }()
	for w := callStepUnlessBegun(h, began); ; w = callStepUnlessBegun(h, began) {
		if w == nil {
			finish <- struct{}{} // the shutdown has not begun yet
			continue
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "0" {
			t.Errorf("a new call got %d %v", w.Code, w.Header())
		}
		break
	}
	finish <- struct{}{}
	if w := <-answer; w.Code != http.StatusOK || w.Body.String() != `"finished"` {
		t.Errorf("the call under way got %d %s", w.Code, w.Body)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// callStepUnlessBegun calls the step and returns the answer, or nil as soon as the step has begun.
func callStepUnlessBegun(h http.Handler, began chan struct{}) *httptest.ResponseRecorder {
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- callStep(h) }()
	select {
	case w := <-answer:
		return w
	case <-began:
		return nil
	}
}

func TestAShutdownThatTakesTooLongEndsContexts(t *testing.T) {
	t.Parallel()
	app, h, began, _ := slow(t)
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- callStep(h) }()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := app.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w := <-answer
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), stepwell.ErrShutdown.Error()) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestServeSaysWhyItCannot(t *testing.T) {
	t.Setenv("STEPWELL_SIGNING_KEYS", "")
	for want, config := range map[string]stepwell.AppConfig{
		"the app has no signing keys": {Name: "shop"},
		"listen tcp":                  {Name: "shop", Unsigned: "a test"},
	} {
		if err := stepwell.NewApp(config).Serve(t.Context(), "127.0.0.1:-1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
