package wire_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// t0 is the initial time of every server. It has nanoseconds, which must never appear on the wire.
var t0 = time.Date(2026, 11, 21, 1, 41, 43, 197_654_321, time.UTC)

// shown returns a time as it appears on the wire.
func shown(t time.Time) time.Time { return t.Truncate(time.Millisecond) }

// server is a complete server with its own database and clock.
type server struct {
	url   string
	web   *httptest.Server
	pool  *pgxpool.Pool
	drain context.CancelFunc
	logs  *testdb.Log

	mu  sync.Mutex
	now time.Time
}

func newServer(t *testing.T, with ...func(*handlers.Options)) *server {
	t.Helper()
	pool := testdb.Connect(t, testdb.Indexed(t))
	s := &server{pool: pool, logs: &testdb.Log{}, now: t0}
	logger := slog.New(slog.NewTextHandler(s.logs, nil))

	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })

	q := check.Value(queue.New(pool, migrations.DefaultSchema, hub))(t)
	draining, drain := context.WithCancel(context.Background())
	s.drain = drain
	options := handlers.Options{
		Pool: pool, Log: eventlog.New(pool, hub, q, s.clock), Streams: read.NewStreams(pool, hub, s.clock),
		Queue: q, Open: true, Logger: logger, Draining: draining,
	}
	for _, set := range with {
		set(&options)
	}
	web := httptest.NewServer(handlers.New(options))
	t.Cleanup(web.Close)
	t.Cleanup(drain)
	s.web, s.url = web, web.URL
	return s
}

func (s *server) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// advance advances the server's clock and returns the new time as it appears on the wire.
func (s *server) advance(d time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	return shown(s.now)
}

// The user agents of both lines.
const (
	stable = "@workflow/world-vercel/4.7.4 node-v20.20.2 linux (x64) dpl_x"
	beta   = "@workflow/world-vercel/5.0.0-beta.31 node-v22.12.0 linux (x64) dpl_x"
)

// client sends requests as the official client does.
type client struct {
	*server

	agent string
}

// answer is a complete response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request to a path below the protocol's base URL.
func (c client) send(t *testing.T, method, path string, body io.Reader, header ...string) answer {
	t.Helper()
	req := check.Value(http.NewRequestWithContext(t.Context(), method, c.url+"/sdk"+path, body))(t)
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("X-Request-Time", "1795225268528")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := check.Value(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// get sends a GET request.
func (c client) get(t *testing.T, path string) answer {
	t.Helper()
	return c.send(t, http.MethodGet, path, nil, "Accept", "application/cbor")
}

// post posts an event.
func (c client) post(t *testing.T, runID, eventType string, body []byte, fields ...field) answer {
	t.Helper()
	fields = append([]field{{"eventType", eventType}, {"specVersion", uint16(3)}}, fields...)
	return c.send(t, http.MethodPost, "/v4/runs/"+runID+"/events/"+eventType,
		bytes.NewReader(frame(t, meta(t, fields...), body)), "Content-Type", "application/octet-stream")
}

// must posts an event, which must be accepted.
func (c client) must(t *testing.T, runID, eventType string, body []byte, fields ...field) map[string]any {
	t.Helper()
	got := c.post(t, runID, eventType, body, fields...)
	if got.status != http.StatusOK {
		t.Fatalf("%s: got %d %s", eventType, got.status, got.body)
	}
	return got.cbor(t)
}
