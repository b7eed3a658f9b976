package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// newEcho returns a server with its own database, and its log.
func newEcho(t testing.TB, key string) (*echo.Echo, *pgxpool.Pool, *testdb.Log) {
	t.Helper()
	e, q, l := newEchoOf(t, key)
	return e, q.Pool(), l
}

// newEchoOf is [newEcho], and returns the queue too.
func newEchoOf(t testing.TB, key string) (*echo.Echo, *queue.Queue, *testdb.Log) {
	t.Helper()
	pool := testdb.Pool(t)
	l := &testdb.Log{}
	logger := slog.New(telemetry.LogHandler(slog.NewTextHandler(l, nil)))
	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q := check.Value(queue.New(pool, migrations.DefaultSchema, hub))(t)
	draining, drain := context.WithCancel(context.Background())
	t.Cleanup(drain)
	return New(Options{
		Pool: pool, Log: eventlog.New(pool, hub, q, time.Now), Streams: read.NewStreams(pool, hub, time.Now), Queue: q,
		APIKey: key, Open: key == "", Logger: logger, Telemetry: newTelemetry(pool, q),
		Stopping: context.Background(), Draining: draining,
	}), q, l
}

// newTelemetry returns telemetry without traces.
func newTelemetry(pool *pgxpool.Pool, q *queue.Queue) *telemetry.Telemetry {
	return newTelemetryAt(pool, q, time.Now)
}

func newTelemetryAt(pool *pgxpool.Pool, q *queue.Queue, now func() time.Time) *telemetry.Telemetry {
	return telemetry.New(telemetry.Options{
		Gauges: q.Gauges, Pool: func() telemetry.PoolStat { return pool.Stat() }, Now: now, Build: telemetry.Build{Version: "test"},
		ShareWaits: pg.NewConnections(now).Waits,
	})
}

// serve serves one request without a body.
func serve(e http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}
