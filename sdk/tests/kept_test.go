package tests

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// balance returns the address of a load balancer in front of the servers. A request to one that is away is answered
// with 502, and repeated. Kept is sent to for each call that is kept while the test receives from it.
func balance(t *testing.T, servers []*server, kept chan<- struct{}) string {
	t.Helper()
	var next atomic.Int64
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.addr)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		address := addresses[int(next.Add(1))%len(addresses)]
		r.SetURL(&url.URL{Scheme: "http", Host: address})
	}, ModifyResponse: func(resp *http.Response) error {
		if strings.HasSuffix(resp.Request.URL.Path, "/call/keep") && resp.StatusCode == http.StatusNoContent {
			select {
			case kept <- struct{}{}:
			default:
			}
		}
		return nil
	}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	l := httptest.NewServer(proxy)
	t.Cleanup(l.Close)
	return l.URL
}

var (
	shipping = stepwell.NewWorkflow[string, string]("shipping")
	weigh    = stepwell.NewStep[string, string]("weigh")
)

// TestCallsOutliveTheirServers replaces all servers, one after the other, during a step that the workflow's call
// executes, and during one that has a call of its own. Each is executed once.
func TestCallsOutliveTheirServers(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newServer(t, "STEPWELL_SHUTDOWN_GRACE=500ms") // shorter than the steps
			servers := []*server{first, first.beside(t), first.beside(t)}
			client := first.client(t, "write")
			kept := make(chan struct{})
			began, goOn := make(chan string), make(chan struct{})
			work := func(ctx context.Context, name string) (string, error) {
				began <- name
				select {
				case <-goOn:
					return name, nil
				case <-ctx.Done():
					t.Errorf("%s was cancelled: %v", name, context.Cause(ctx))
					return "", context.Cause(ctx)
				}
			}
			app := stepwell.NewApp(stepwell.AppConfig{
				Name: "shipping", Server: balance(t, servers, kept), Unsigned: "a test in one process",
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			app.Register(weigh.Bind(work), shipping.Bind(func(w *stepwell.Context, in string) (string, error) {
				packed, err := stepwell.Do(w, "pack", func(ctx context.Context) (string, error) {
					return work(ctx, "packed")
				})
				if err != nil {
					return "", err
				}
				weighed, err := weigh.Run(w, "weighed")
				return packed + " " + weighed, err
			}))
			h, err := app.Handler()
			if err != nil {
				t.Fatal(err)
			}
			listener := httptest.NewServer(h)
			t.Cleanup(listener.Close)
			servers[0].admin(t, http.MethodPut, "/v1/deployments/shipping", map[string]any{"url": listener.URL}, nil)

			run, err := shipping.Start(t.Context(), client, "order")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"packed", "weighed"} {
				if got := <-began; got != want {
					t.Fatalf("%s begins, want %s", got, want)
				}
				for _, s := range servers {
					<-kept
					if err := s.stop(signal); err != nil {
						t.Fatal(err)
					}
					select {
					case again := <-began:
						t.Fatalf("%s is executed again", again)
					default:
					}
					s.start(t)
				}
				goOn <- struct{}{}
			}
			ended := make(chan struct{})
			defer close(ended)
			go func() {
				select {
				case again := <-began:
					t.Errorf("%s is executed again", again)
					goOn <- struct{}{}
				case <-ended:
				}
			}()
			out, err := run.Wait(t.Context())
			if err != nil || out != "packed weighed" {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
}
