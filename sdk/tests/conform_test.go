package tests

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// The workflows of docs/conform.md.
var (
	conformEcho   = stepwell.NewWorkflow[json.RawMessage, json.RawMessage]("conform.echo")
	conformDraw   = stepwell.NewStep[stepwell.None, int64]("conform.draw")
	conformThird  = stepwell.NewStep[stepwell.None, string]("conform.third", stepwell.Attempts(5), stepwell.Backoff(time.Second, time.Second))
	conformHook   = stepwell.NewHook[json.RawMessage]("conform.hook")
	errAsWasAsked = stepwell.NewErrorKind[string]("conform")
)

func draw(context.Context, stepwell.None) (int64, error) { return rand.Int64N(1 << 40), nil }

// conforming are the definitions that `stepwell conform` checks.
func conforming() []stepwell.Definition {
	return []stepwell.Definition{
		conformDraw.Bind(draw),
		conformThird.Bind(func(ctx context.Context, _ stepwell.None) (string, error) {
			if stepwell.Info(ctx).Attempt < 3 {
				return "", errors.New("not yet")
			}
			return "third time", nil
		}),
		conformEcho.Bind(func(_ *stepwell.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }),
		workflow("conform.steps", func(w *stepwell.Context, n int) (drawn []int64, err error) {
			for range n {
				v, err := conformDraw.Run(w, stepwell.None{})
				if err != nil {
					return nil, err
				}
				drawn = append(drawn, v)
			}
			return drawn, nil
		}),
		workflow("conform.parallel", func(w *stepwell.Context, n int) ([]int64, error) {
			return stepwell.Map(w, make([]int, n), func(w *stepwell.Context, _ int) (int64, error) {
				return conformDraw.Run(w, stepwell.None{})
			})
		}),
		workflow("conform.sleep", func(w *stepwell.Context, _ string) (string, error) {
			return "awake", w.Sleep(time.Second)
		}),
		workflow("conform.retry", func(w *stepwell.Context, _ stepwell.None) (string, error) {
			return conformThird.Run(w, stepwell.None{})
		}),
		workflow("conform.fail", func(*stepwell.Context, stepwell.None) (stepwell.None, error) {
			return stepwell.None{}, errAsWasAsked.New("as asked")
		}),
		workflow("conform.hook", func(w *stepwell.Context, token string) (json.RawMessage, error) {
			return conformHook.Open(w, stepwell.Token(token)).Receive(w)
		}),
		workflow("conform.child", func(w *stepwell.Context, in json.RawMessage) (json.RawMessage, error) {
			return conformEcho.Child(w, in).Await(w)
		}),
	}
}

func workflow[I, O any](name string, fn func(*stepwell.Context, I) (O, error)) stepwell.Definition {
	return stepwell.NewWorkflow[I, O](name).Bind(fn)
}

// conformResults executes `stepwell conform` and returns what its checks say that did not pass.
func (s *server) conformResults(
	t *testing.T, function http.Handler, flags ...string,
) (checks int, failed map[string]string) {
	t.Helper()
	f := httptest.NewServer(function)
	t.Cleanup(f.Close)
	cmd := exec.CommandContext(t.Context(), program, append([]string{"conform", "--json", f.URL}, flags...)...)
	cmd.Env = []string{"STEPWELL_URL=" + s.url(), "STEPWELL_API_KEY=" + adminKey}
	out, err := cmd.Output() // fails if a check does
	failed = map[string]string{}
	for line := range strings.Lines(string(out)) {
		var r struct{ Check, Failure, Skipped string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		checks++
		if r.Failure+r.Skipped != "" {
			failed[r.Check] = r.Failure + r.Skipped
		}
	}
	if (err == nil) != (len(failed) == 0) {
		t.Errorf("it ended with %v though %v failed", err, failed)
	}
	return checks, failed
}

func (s *server) conformingApp(t *testing.T, c stepwell.AppConfig, more ...stepwell.Definition) http.Handler {
	t.Helper()
	c.Name, c.Server = "conform", s.url()
	app := stepwell.NewApp(c)
	app.Register(conforming()...)
	app.Override(more...)
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestTheSDKConforms(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	app := s.conformingApp(t, stepwell.AppConfig{SigningKeys: s.signingKey(t)})
	if checks, failed := s.conformResults(t, app); checks != 26 || len(failed) > 0 {
		t.Errorf("of %d checks, these failed: %v", checks, failed)
	}
}

// forgetful is a function that answers another way if a call comes again.
type forgetful struct {
	http.Handler

	mu   sync.Mutex
	seen map[string]int
}

// ServeHTTP implements [http.Handler].
func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen[r.Header.Get("Stepwell-Invocation")]++
	again := f.seen[r.Header.Get("Stepwell-Invocation")] > 1
	f.mu.Unlock()
	if again {
		_, _ = io.WriteString(w, `{"commands":[{"type":"wait","id":"another","for":"1h"}]}`)
		return
	}
	f.Handler.ServeHTTP(w, r)
}

// TestConformFindsFaults: each function has one fault.
func TestConformFindsFaults(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	app := stepwell.AppConfig{SigningKeys: s.signingKey(t)}
	for name, c := range map[string]struct {
		function http.Handler
		check    string
		failure  string
	}{
		"a workflow draws itself": {
			s.conformingApp(t, app, workflow("conform.steps", func(_ *stepwell.Context, n int) ([]int64, error) {
				return make([]int64, n), nil
			})),
			"plain conform.steps", "its log has 0 results of steps, and should have 3",
		},
		"another output": {
			s.conformingApp(t, app, workflow("conform.echo", func(*stepwell.Context, any) (any, error) { return 1, nil })),
			"lost conform.echo", "it is completed with 1, and should be completed with",
		},
		"a step is not tried again": {
			s.conformingApp(t, app, conformThird.Bind(func(context.Context, stepwell.None) (string, error) {
				return "third time", nil
			})),
			"doubled conform.retry", "its log has 0 attempts that failed",
		},
		"another code": {
			s.conformingApp(t, app, workflow("conform.fail", func(*stepwell.Context, stepwell.None) (stepwell.None, error) {
				return stepwell.None{}, errors.New("as asked")
			})),
			"plain conform.fail", "should fail with the code conform",
		},
		"no wait": {
			s.conformingApp(t, app, workflow("conform.sleep", func(*stepwell.Context, string) (string, error) {
				return "awake", nil
			})),
			"plain conform.sleep", "its log has no wait",
		},
		"other answers to repeated calls": {
			&forgetful{Handler: s.conformingApp(t, app), seen: map[string]int{}}, "repeated calls", "when it was repeated with",
		},
		"signatures are ignored": {
			s.conformingApp(t, stepwell.AppConfig{Unsigned: "a fault"}), "forged calls", "and should be with 401",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, failed := s.conformResults(t, c.function, "--timeout=20s"); !strings.Contains(failed[c.check], c.failure) {
				t.Errorf("%s says %q, want %q; all: %v", c.check, failed[c.check], c.failure, failed)
			}
		})
	}
}
