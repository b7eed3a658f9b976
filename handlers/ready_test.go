package handlers

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// newSmallProbes returns probes with a pool of one connection.
func newSmallProbes(t *testing.T, options ...func(*pgxpool.Config)) (*echo.Echo, *pgxpool.Pool) {
	t.Helper()
	options = append(options, func(c *pgxpool.Config) { c.MaxConns = 1 })
	pool := testdb.Pool(t, options...)
	q, err := queue.New(pool, migrations.DefaultSchema, nil)
	if err != nil {
		return NewProbes(Options{
			Pool: pool, Log: eventlog.New(pool, nil, q, time.Now), Queue: q, Logger: slog.New(slog.DiscardHandler),
			Stopping: t.Context(),
		}), pool
	}
	return NewProbes(Options{Pool: pool, Log: eventlog.New(pool, nil, q, time.Now), Queue: q, Logger: slog.New(slog.DiscardHandler), Stopping: t.Context()}), pool
}

func wantReady(t *testing.T, e http.Handler, status int, body string) {
	t.Helper()
	got := serve(e, http.MethodGet, "/readyz")
	if got.Code != status || strings.TrimSpace(got.Body.String()) != body {
		t.Errorf("/readyz: got %d %s, want %d %s", got.Code, got.Body, status, body)
	}
}

// TestBusyServerIsReady checks that other requests get connections while the probe gets none in time.
func TestBusyServerIsReady(t *testing.T) {
	t.Parallel()
	e, pool := newSmallProbes(t)
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	served := make(chan struct{}, 60)
	for range cap(served) {
		busy.Go(func() {
			_, _ = pool.Exec(ctx, `SELECT pg_sleep(0.1)`) // served in order
			served <- struct{}{}
		})
	}
	for range 3 { // meanwhile all of them wait
		<-served
	}
	wantReady(t, e, http.StatusOK, `{"status":"busy"}`)
}

// TestServerWithStuckConnectionsIsNotReady checks that it is ready again when a connection is free.
func TestServerWithStuckConnectionsIsNotReady(t *testing.T) {
	t.Parallel()
	e, pool := newSmallProbes(t)
	conn := check.Value(pool.Acquire(t.Context()))(t)
	wantReady(t, e, http.StatusServiceUnavailable, `{"status":"no connection to the database is free"}`)
	conn.Release()
	wantReady(t, e, http.StatusOK, `{"status":"ok"}`)
}

// TestUnreachableDatabaseIsNotReady checks databases that refuse connections or do not answer.
func TestUnreachableDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(restored <-chan struct{}){
		"refuses": func(<-chan struct{}) {},
		"silent":  func(restored <-chan struct{}) { <-restored },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cut atomic.Bool
			restored := make(chan struct{})
			e, pool := newSmallProbes(t, func(c *pgxpool.Config) {
				dial := c.ConnConfig.DialFunc
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if cut.Load() {
						wait(restored)
						return nil, syscall.ECONNREFUSED
					}
					return dial(ctx, network, addr)
				}
			})
			wantReady(t, e, http.StatusOK, `{"status":"ok"}`)
			cut.Store(true)
			pool.Reset()
			wantReady(t, e, http.StatusServiceUnavailable, `{"status":"database unreachable"}`)
			cut.Store(false)
			close(restored)
			wantReady(t, e, http.StatusOK, `{"status":"ok"}`)
		})
	}
}
