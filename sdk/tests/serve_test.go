package tests

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// TestAnAppRegistersItself runs the program of an app, with a key that may do nothing else.
func TestAnAppRegistersItself(t *testing.T) {
	s := newServer(t)
	t.Setenv("STEPWELL_URL", s.url())
	t.Setenv("STEPWELL_API_KEY", s.workerKey(t, "orders@*"))
	t.Setenv("STEPWELL_SIGNING_KEYS", s.signingKey(t))
	address := freeAddress(t)
	registered := &signal{text: "registered", seen: make(chan struct{})}
	logger := slog.New(slog.NewTextHandler(registered, nil))
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "orders", Build: "3f20b23", Logger: logger, PublicURL: "http://" + address,
	})
	app.Register(approve.Bind(approveOrder))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Serve(ctx, address) }()
	select {
	case <-registered.seen:
	case err := <-ended:
		t.Fatal(err)
	}

	var d struct {
		Build     string
		Workflows []string
		Schemas   map[string]struct{ Input, Output map[string]any }
		OpenRuns  int64
	}
	c := s.client(t, "write")
	run := start(t, c, "order-1") // on the newest deployment that has the workflow
	s.admin(t, http.MethodGet, "/v1/deployments/orders@3f20b23", nil, &d)
	if d.Build != "3f20b23" || strings.Join(d.Workflows, " ") != "approve" || d.OpenRuns != 1 ||
		d.Schemas["approve"].Input["type"] != "string" {
		t.Errorf("the deployment is %+v", d)
	}
	resume(t, c, run, "order-1", vote{true})
	if out, err := run.Wait(t.Context()); err != nil || out != "shipped order-1" {
		t.Errorf("got %q %v", out, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// TestAnAppCannotRegisterAsAnother also checks that an app that was built outside a repository can register.
func TestAnAppCannotRegisterAsAnother(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := connect(t, s.url(), s.workerKey(t, "orders@*"))
	for name, want := range map[string]string{
		"shop":   "403 forbidden: forbidden: the key is for the deployments orders@* only",
		"orders": "",
	} {
		err := stepwell.NewApp(stepwell.AppConfig{Name: name, Build: "1"}).Announce(t.Context(), c, "http://127.0.0.1:1")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if err := stepwell.NewApp(stepwell.AppConfig{Name: "orders"}).Announce(t.Context(), c, "http://127.0.0.1:1"); err != nil {
		t.Errorf("without a revision: %v", err)
	}
}

// workerKey creates a key that registers deployments.
func (s *server) workerKey(t *testing.T, deployments string) string {
	t.Helper()
	var made struct{ Key string }
	s.admin(t, http.MethodPost, "/v1/keys",
		map[string]any{"name": "test", "role": "worker", "deployments": deployments}, &made)
	return made.Key
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// signal is closed by the first write that has a text.
type signal struct {
	text string
	seen chan struct{}
	once sync.Once
}

// Write implements [io.Writer].
func (s *signal) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.text) {
		s.once.Do(func() { close(s.seen) })
	}
	return len(line), nil
}
