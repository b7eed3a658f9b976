package tests

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/embedded"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// embeddedVariable makes this program embed the app of TestEmbeddedIsKilled and start a run. It has the schema.
const embeddedVariable = "SDK_TESTS_EMBEDDED"

var (
	sum    = stepwell.NewWorkflow[int, int]("sum")
	double = stepwell.NewStep[int, int]("double")
)

// sumApp is an app whose workflow has a step of each kind: inline, and called by the server. Inline steps call during.
func sumApp(build string, during func(context.Context)) *stepwell.App {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "sums", Build: build, Logger: slog.New(slog.DiscardHandler)})
	app.Register(
		double.Bind(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		sum.Bind(func(w *stepwell.Context, n int) (int, error) {
			one, err := stepwell.Do(w, "one", func(ctx context.Context) (int, error) {
				during(ctx)
				return 1, nil
			})
			if err != nil {
				return 0, err
			}
			if err := w.Sleep(10 * time.Millisecond); err != nil {
				return 0, err
			}
			twice, err := double.Run(w, n)
			return one + twice, err
		}))
	return app
}

func nothing(context.Context) {}

// embed starts a server with the app in this process, which ends with the test, and returns its client.
func embed(t *testing.T, schema string, app *stepwell.App) *stepwell.Client {
	t.Helper()
	return embeddedClient(t, embedServer(t, schema, app))
}

func embedServer(t *testing.T, schema string, app *stepwell.App) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{
		DatabaseURL: databaseURL, Schema: schema, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, app)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func embeddedClient(t *testing.T, s *embedded.Server) *stepwell.Client {
	t.Helper()
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: embedded.URL, HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newSchema() string { return "sdk_" + strings.ToLower(rand.Text()[:12]) }

// wantSum starts runs and checks their outputs.
func wantSum(t *testing.T, c *stepwell.Client, runs int) {
	t.Helper()
	started := make([]*stepwell.Run[int], runs)
	for i := range started {
		var err error
		if started[i], err = sum.Start(t.Context(), c, i); err != nil {
			t.Fatal(err)
		}
	}
	for i, run := range started {
		if got, err := run.Wait(t.Context()); err != nil || got != 2*i+1 {
			t.Errorf("got %d and %v, want %d", got, err, 2*i+1)
		}
	}
}

// TestEmbeddedLeavesNothing: it needs no socket, changes nothing global, and when it has ended, nothing of it runs.
func TestEmbeddedLeavesNothing(t *testing.T) { //nolint:paralleltest // it counts goroutines
	logger, before := slog.Default(), runtime.NumGoroutine()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	c := embedded.Config{DatabaseURL: databaseURL, Schema: newSchema()}
	if err := embedded.Migrate(ctx, c); err != nil {
		t.Fatal(err)
	}
	c.SkipMigrations = true
	s, err := embedded.Start(ctx, c, sumApp("1", nothing))
	if err != nil {
		t.Fatal(err)
	}
	wantSum(t, embeddedClient(t, s), 5)
	if s.Addr() != "" {
		t.Errorf("it listens at %s", s.Addr())
	}
	end()
	<-s.Done()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if slog.Default() != logger {
		t.Error("it has changed the default logger")
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestEmbeddedServersShareNothing: two in one process, with apps of the same name, each in a schema of its own.
func TestEmbeddedServersShareNothing(t *testing.T) {
	t.Parallel()
	for range 2 {
		c := embed(t, newSchema(), sumApp("1", nothing))
		wantSum(t, c, 3)
		found := 0
		for _, err := range c.Runs(t.Context(), stepwell.RunFilter{}) {
			if found++; err != nil {
				t.Fatal(err)
			}
		}
		if found != 3 {
			t.Errorf("got %d runs, want 3", found)
		}
	}
}

// TestEmbeddedBesideAServer: a server without the app gives its work to the process that has it, and the two share the
// database.
func TestEmbeddedBesideAServer(t *testing.T) {
	t.Parallel()
	plain := newServer(t)
	c := plain.client(t, "admin")
	embed(t, plain.schema, sumApp("1", nothing))
	wantSum(t, c, 20)
}

// TestEmbeddedStarts only with what it needs.
func TestEmbeddedStarts(t *testing.T) {
	t.Parallel()
	app := sumApp("1", nothing)
	for want, c := range map[string]embedded.Config{
		"DatabaseURL or Pool":  {},
		"APIKey":               {DatabaseURL: databaseURL, APIKey: "short"},
		"Deliveries is -1":     {DatabaseURL: databaseURL, Deliveries: -1},
		"must not be negative": {DatabaseURL: databaseURL, Grace: -1},
	} {
		if _, err := embedded.Start(t.Context(), c, app); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
	embed(t, newSchema(), app)
	_, err := embedded.Start(t.Context(), embedded.Config{DatabaseURL: databaseURL, Schema: newSchema()}, app)
	if err == nil || !strings.Contains(err.Error(), "embedded already") {
		t.Errorf("got %v, want that the app is embedded already", err)
	}
}

// TestEmbeddedListens: what comes from outside needs a key.
func TestEmbeddedListens(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef"
	s, err := embedded.Start(t.Context(), embedded.Config{
		DatabaseURL: databaseURL, Schema: newSchema(), Listen: "127.0.0.1:0", APIKey: key,
	}, sumApp("1", nothing))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	wantSum(t, connect(t, "http://"+s.Addr(), key), 1)
	_, err = sum.Start(t.Context(), connect(t, "http://"+s.Addr(), ""), 1)
	if refused := (*stepwell.APIError)(nil); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
		t.Errorf("got %v without a key, want 401", err)
	}
}

// TestEmbeddedIsKilled: another process goes on with the run of one that is killed in a step, also if it has another
// build of the app.
func TestEmbeddedIsKilled(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]string{"same build": "1", "other build": "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := newSchema()
			child, id, err := startProcess(exec.Command(os.Args[0]), regexp.MustCompile(`in a step of (wrun_\w+)`),
				embeddedVariable+"="+schema, "SDK_TESTS_DATABASE="+databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			c := embed(t, schema, sumApp(build, nothing))
			if err := child.stop(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			killed := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := sum.Handle(c, id).Wait(ctx)
			if err != nil || got != 15 {
				t.Errorf("got %d and %v, want 15", got, err)
			}
			t.Logf("it went on within %s", time.Since(killed))
		})
	}
}

// watchedApp counts the commands that it sends to the server.
type watchedApp struct {
	*stepwell.App

	requests, exchanges atomic.Int64
	byRequest           bool      // it can only send requests
	next                exchanger // carries out what is no request
}

type exchanger interface {
	Exchange(ctx context.Context, run, call string, after int64, commands []byte) ([]byte, error)
}

// watchedTransport is the server's, with the method that the app looks for. Transport alone is without it.
type watchedTransport struct {
	http.RoundTripper

	app *watchedApp
}

func (a *watchedApp) Embed(server *http.Client) (http.Handler, error) {
	next := server.Transport
	a.next = next.(exchanger)
	counting := roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/commands") {
			a.requests.Add(1)
		}
		return next.RoundTrip(r)
	})
	if a.byRequest {
		return a.App.Embed(&http.Client{Transport: counting})
	}
	return a.App.Embed(&http.Client{Transport: watchedTransport{counting, a}})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (t watchedTransport) Exchange(
	ctx context.Context, run, call string, after int64, commands []byte,
) ([]byte, error) {
	t.app.exchanges.Add(1)
	return t.app.next.Exchange(ctx, run, call, after, commands)
}

// TestEmbeddedCommandsAreNoRequests: the result of each step is on disk before the next one begins, without a request of
// the app, and without a change of the message that has it called. An app that can only send requests does.
func TestEmbeddedCommandsAreNoRequests(t *testing.T) {
	t.Parallel()
	for name, byRequest := range map[string]bool{"directly": false, "by request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema, four := newSchema(), stepwell.NewWorkflow[int, int]("four")
			app := &watchedApp{byRequest: byRequest, App: stepwell.NewApp(stepwell.AppConfig{Name: "fours", Build: "1"})}
			app.Register(four.Bind(func(w *stepwell.Context, _ int) (results int, _ error) {
				var first string
				for i := range 4 {
					_, err := stepwell.Do(w, fmt.Sprint("step ", i), func(ctx context.Context) (int, error) {
						var message string
						results, message = onDisk(t, ctx, schema)
						if first = cmp.Or(first, message); results != i || message != first {
							t.Errorf("step %d sees %d results, and the message %s, which was %s", i, results, message, first)
						}
						return 0, nil
					})
					if err != nil {
						return 0, err
					}
				}
				return results, nil
			}))
			s, err := embedded.Start(t.Context(), embedded.Config{DatabaseURL: databaseURL, Schema: schema}, app)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if got, err := four.Execute(t.Context(), embeddedClient(t, s), 1); err != nil || got != 3 {
				t.Fatalf("got %d and %v", got, err)
			}
			requests, exchanges := app.requests.Load(), app.exchanges.Load()
			if byRequest && (requests != 3 || exchanges != 0) || !byRequest && (requests != 0 || exchanges != 3) {
				t.Errorf("the app has sent %d requests, and %d commands directly", requests, exchanges)
			}
		})
	}
}

// onDisk returns how many steps of the only run in the schema have ended, and the message that has it called.
func onDisk(t *testing.T, ctx context.Context, schema string) (results int, message string) {
	for row := range strings.Lines(must[string](t)(harness.Rows(ctx, databaseURL, schema))) {
		if strings.HasPrefix(row, "steps ") {
			results++
		}
		if strings.HasPrefix(row, "messages ") && strings.Contains(row, ",run,") {
			message += row
		}
	}
	return results, message
}

// embedAndHang embeds the app, starts a run, and never ends its step.
func embedAndHang(schema string) error {
	ctx := context.Background()
	inStep := make(chan struct{})
	app := sumApp("1", func(ctx context.Context) {
		close(inStep)
		<-ctx.Done()
	})
	s, err := embedded.Start(ctx, embedded.Config{DatabaseURL: os.Getenv("SDK_TESTS_DATABASE"), Schema: schema}, app)
	if err != nil {
		return err
	}
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: embedded.URL, HTTP: s.Client()})
	if err != nil {
		return err
	}
	run, err := sum.Start(ctx, c, 7)
	if err != nil {
		return err
	}
	<-inStep
	fmt.Println("in a step of", run.ID())
	select {}
}
