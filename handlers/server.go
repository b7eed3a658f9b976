package handlers

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/stepwell-dev/stepwell/clients"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/handlers/wire"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// sdkPath is where the wire protocol is served: what WORKFLOW_VERCEL_BACKEND_URL ends in.
	sdkPath = "/sdk"
	// nativePath is where the native API is served.
	nativePath = "/v1"

	// maxBody bounds any request body. Payloads of tens of megabytes are legal.
	maxBody      = 160 << 20
	readyTimeout = 2 * time.Second
)

// Options is what the HTTP server is made of.
type Options struct {
	Pool    *pgxpool.Pool
	Log     *eventlog.Log
	Streams *eventlog.Streams
	Queue   *queue.Queue
	// APIKey is the one key that lets requests in; empty lets everyone in.
	APIKey string
	Logger *slog.Logger
	// Draining ends when the server is about to stop.
	Draining context.Context
}

// NewProbes assembles an HTTP server that answers nothing but the probes.
func NewProbes(pool *pgxpool.Pool) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.GET("/healthz", func(c echo.Context) error { return c.JSON(http.StatusOK, state{"ok"}) })
	e.GET("/readyz", ready(pool))
	return e
}

// New assembles the HTTP server.
func New(o Options) *echo.Echo {
	e := NewProbes(o.Pool)
	e.HTTPErrorHandler = errorHandler(o.Logger)
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		LogErrorFunc: func(c echo.Context, err error, stack []byte) error {
			o.Logger.ErrorContext(c.Request().Context(), "panic", "error", err, "stack", string(stack))
			return err
		},
	}))
	e.Use(limitBody)

	e.GET("/clients/world.tgz", worldPackage)

	key := auth.Middleware(o.APIKey)
	(&wire.Server{
		Log: o.Log, Streams: o.Streams, Queue: o.Queue, Reader: o.Pool, Logger: o.Logger, Draining: o.Draining,
	}).Register(e.Group(sdkPath, key))
	(&rest.Server{Log: o.Log, Queue: o.Queue}).Register(e.Group(nativePath, key))
	return e
}

func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)
		return next(c)
	}
}

// state is the body of the probes.
type state struct {
	Status string `json:"status"`
}

// ready reports whether the server can do its work, which it cannot without the database.
func ready(pool *pgxpool.Pool) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
		defer cancel()
		if err := pool.Ping(ctx); err != nil {
			return c.JSON(http.StatusServiceUnavailable, state{"database unreachable"})
		}
		return c.JSON(http.StatusOK, state{"ok"})
	}
}

// worldPackage is the npm package that points an app at this server: npm i http://HOST:PORT/clients/world.tgz.
func worldPackage(c echo.Context) error {
	var tarball bytes.Buffer
	if err := clients.WorldTarball(&tarball); err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/gzip", tarball.Bytes())
}
