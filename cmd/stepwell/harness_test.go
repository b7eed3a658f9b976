package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// TestMain runs the command instead of the tests if a test has started this process as the command.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	testdb.Main(m)
}

// newServer returns a server on a free port, not yet started.
func newServer(t *testing.T, dsn string, r server.Role) *program {
	t.Helper()
	c := defaults()
	c.DatabaseURL, c.Listen, c.Deliveries, c.AllowAddresses, c.Open = dsn, "127.0.0.1:0", 10, "loopback", true
	return &program{config: c, role: r, logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func mustStart(t *testing.T, s *program) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(func() {
		if s.Pool().Ping(context.Background()) == nil { // not yet stopped by the test
			s.stop(context.Background())
		}
	}))
}

// wantStopped checks that a program has closed its listener and its pool.
func wantStopped(t *testing.T, p *program) {
	t.Helper()
	if p.Server != nil {
		servertest.WantStopped(t, p.Addr(), p.Pool())
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

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(waitLimit):
		t.Fatalf("timed out waiting for %s", what)
	}
}

// TestServeEndsWellIfItIsStoppedWhileItStarts: a supervisor takes another exit code for a crash.
func TestServeEndsWellIfItIsStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c := defaults()
	c.DatabaseURL = testdb.New(t)
	if err := (serveCmd{Role: server.RoleAll}).Run(ctx, c, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("got %v", err)
	}
}
