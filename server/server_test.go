package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// newServer returns a server on a free port, not yet started.
func newServer(t *testing.T, dsn string, r Role) *Server {
	t.Helper()
	c := Defaults()
	c.DatabaseURL, c.Listen, c.Deliveries, c.AllowAddresses, c.Open = dsn, "127.0.0.1:0", 10, "loopback", true
	return &Server{Options: Options{Config: c, Role: r, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}}
}

func mustStart(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(func() {
		if s.pool.Ping(context.Background()) == nil { // not yet stopped by the test
			s.Stop(context.Background())
		}
	}))
}

func TestRolesServeOrDeliver(t *testing.T) {
	t.Parallel()
	for r, want := range map[Role]struct {
		api, delivers bool
	}{RoleAll: {true, true}, RoleAPI: {true, false}, RoleWorker: {false, true}} {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testdb.New(t), r)
			mustStart(t, s)
			for _, probe := range []string{"/healthz", "/readyz"} {
				if got := servertest.Request(t, http.MethodGet, "http://"+s.addr+probe, ""); got.StatusCode != http.StatusOK {
					t.Errorf("%s: got %s", probe, got.Status)
				}
			}
			for _, path := range []string{"/v1/deployments", "/sdk/v2/runs", "/clients/world.tgz"} {
				got := servertest.Request(t, http.MethodGet, "http://"+s.addr+path, "")
				if (got.StatusCode == http.StatusOK) != want.api {
					t.Errorf("%s: got %s, want it served: %v", path, got.Status, want.api)
				}
			}
			if (s.worker != nil) != want.delivers {
				t.Errorf("delivers: %v, want %v", s.worker != nil, want.delivers)
			}
			s.Stop(t.Context())
			servertest.WantStopped(t, s.addr, s.pool)
		})
	}
}

func TestConcurrentStartOnEmptyDatabase(t *testing.T) {
	t.Parallel()
	dsn := testdb.Empty(t)
	servers := []*Server{newServer(t, dsn, RoleAll), newServer(t, dsn, RoleAll)}
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.Start(t.Context()) })
	}
	wg.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			t.Errorf("server %d: %v", i, errs[i])
			continue
		}
		if got := servertest.Request(t, http.MethodGet, "http://"+s.addr+"/sdk/v2/runs", ""); got.StatusCode != http.StatusOK {
			t.Errorf("server %d: got %s", i, got.Status)
		}
		s.Stop(t.Context())
		servertest.WantStopped(t, s.addr, s.pool)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"port taken": {func(c *Config) { c.Listen = taken.Addr().String() }, "STEPWELL_LISTEN"},
		"no database URL": {
			func(c *Config) { c.DatabaseURL = "postgres://x y" }, "database URL",
		},
		"schema":             {func(c *Config) { c.Schema = "Robert'); DROP" }, "schema name"},
		"deployment address": {func(c *Config) { c.Deployments = map[string]string{"a": "http://10.0.0.1"} }, "a: the server does not call 10.0.0.1"},
		"deployment URL":     {func(c *Config) { c.Deployments = map[string]string{"a": "b"} }, "STEPWELL_DEPLOYMENTS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testdb.New(t), RoleAll)
			tt.change(&s.Config)
			if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %s", err, tt.want)
			}
			servertest.WantStopped(t, s.addr, s.pool)
		})
	}
}

func TestDeploymentsAreRegisteredAtStart(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), RoleAPI)
	s.Deployments = map[string]string{"shop": "http://127.0.0.1:3000"}
	mustStart(t, s)
	body, err := io.ReadAll(servertest.Request(t, http.MethodGet, "http://"+s.addr+"/v1/deployments", "").Body)
	if err != nil || !strings.Contains(string(body), `"id":"shop","url":"http://127.0.0.1:3000"`) {
		t.Errorf("got %s and %v", body, err)
	}
}

// signalWriter closes a channel once a text is written.
type signalWriter struct {
	io.Writer

	text string
	seen chan struct{}
	once sync.Once
}

func newSignalWriter(w io.Writer, text string) *signalWriter {
	return &signalWriter{Writer: w, text: text, seen: make(chan struct{})}
}

func (s *signalWriter) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if strings.Contains(string(p), s.text) {
		s.once.Do(func() { close(s.seen) })
	}
	return n, err
}

// waitLimit is how long tests wait for something to happen.
const waitLimit = 2 * time.Minute

// until waits until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(waitLimit):
		t.Fatalf("timed out waiting for %s", what)
	}
}

// workAndAcknowledge extends a lease several times and then acknowledges the message.
func workAndAcknowledge(t *testing.T, topic string, delivery http.Header) error {
	lease := topic + "/consumer/default/lease/" + delivery.Get("Ce-Vqsreceipthandle")
	for range 50 {
		got, err := servertest.Try(t, http.MethodPatch, lease, `{"visibilityTimeoutSeconds":300}`)
		if err != nil || got.StatusCode != http.StatusNoContent {
			return fmt.Errorf("extend: %v, %w", got, err)
		}
	}
	got, err := servertest.Try(t, http.MethodDelete, lease, "")
	if err != nil || got.StatusCode != http.StatusNoContent {
		return fmt.Errorf("acknowledge: %v, %w", got, err)
	}
	return nil
}

// TestShutdownFinishesDeliveries: the API serves the function until its delivery has finished, and streams are cut off.
func TestShutdownFinishesDeliveries(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := newServer(t, dsn, RoleAll)
	stopping := newSignalWriter(t.Output(), "msg=stopping")
	s.Logger = slog.New(slog.NewTextHandler(stopping, nil))

	started, worked := make(chan struct{}), make(chan error, 1)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-stopping.seen
		worked <- workAndAcknowledge(t, "http://"+s.addr+"/sdk/queues-proxy/api/v3/topic/__wkf_step_a", r.Header)
	}))
	t.Cleanup(app.Close)
	s.Deployments = map[string]string{"shop": app.URL}
	// Not mustStart: serve stops the server.
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		if err := s.Start(ctx); err != nil {
			done <- err
			close(ready)
			return
		}
		close(ready)
		done <- s.Serve(ctx)
	}()
	await(t, "the start", ready)
	base := "http://" + s.addr + "/sdk"
	sent := servertest.Request(t, http.MethodPost, base+"/queues-proxy/api/v3/topic/__wkf_step_a", "x", "Vqs-Deployment-Id", "shop")
	if sent.StatusCode != http.StatusCreated {
		t.Fatalf("send: got %s", sent.Status)
	}
	await(t, "the delivery", started)
	stream := servertest.Request(t, http.MethodGet, base+"/v2/stream/strm_1", "")

	cancel()
	if err := <-worked; err != nil {
		t.Errorf("work while stopping: %v", err)
	}
	free := time.Now()
	if rest, err := io.ReadAll(stream.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("stream: got %q and %v, want io.ErrUnexpectedEOF", rest, err)
	}
	if took := time.Since(free); took >= ShutdownTimeout {
		t.Errorf("the stream was cut off after %s: stopping waited for it", took)
	}
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	servertest.WantStopped(t, s.addr, s.pool)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM stepwell.messages`).Scan(&left); err != nil || left != 0 {
		t.Errorf("got %d messages (%v), want none", left, err)
	}
}

func TestServeEndsWhenListenerFails(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), RoleAll)
	mustStart(t, s)
	if err := s.http.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context()); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("got %v, want %v", err, http.ErrServerClosed)
	}
	servertest.WantStopped(t, s.addr, s.pool)
}
