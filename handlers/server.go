package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/stepwell-dev/stepwell/clients"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/handlers/wire"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

const (
	// sdkPath is where the wire protocol is served: what WORKFLOW_VERCEL_BACKEND_URL ends in.
	sdkPath = "/sdk"
	// nativePath is where the native API is served.
	nativePath = "/v1"
	// hooksPath is where strangers resume runs by webhooks.
	hooksPath = "/hooks"

	// maxBody bounds any request body. Payloads of tens of megabytes are legal.
	maxBody = 160 << 20
	// Strangers have room of their own, so that they take none from the functions.
	hookRequests      = 1000
	hookRequestMemory = 64 << 20
	readyTimeout      = 2 * time.Second // for a connection and an answer
)

// Options is what the HTTP server is made of.
type Options struct {
	Pool    *pgxpool.Pool
	Log     *eventlog.Log
	Streams *eventlog.Streams
	Queue   *queue.Queue
	// Keys are the API keys; nil for those of the pool. APIKey is one more, of the environment, and Open lets
	// everyone in who has none; Local is of an open server that only this machine can connect to.
	Keys        *access.Keys
	APIKey      string
	Open, Local bool
	// Requests is how many requests are answered at once, and RequestMemory how many bytes their bodies may
	// have together; 0 for the defaults. Whoever follows a stream or waits for a run does not count.
	Requests, RequestMemory int64
	// Allowed are the addresses besides public ones where deployments may be.
	Allowed egress.Allowed
	// HookRates bound the requests to webhooks.
	HookRates webhook.Rates
	// Telemetry watches the requests and has the metrics; nil for neither.
	Telemetry *telemetry.Telemetry
	Logger    *slog.Logger
	// Stopping ends when the server takes on no more deliveries: from then on it is not ready. Draining
	// ends when it is about to answer no more: whoever follows a stream is then cut off.
	Stopping, Draining context.Context
	// Function is of a server in function mode; nil of others.
	Function *Function
	// Trouble says what keeps the server from working although the database answers; nothing while
	// nothing does. It may be nil.
	Trouble func() string
}

// NewProbes assembles an HTTP server that answers nothing but the probes and, with a key, the metrics. It needs only
// the pool, the log, the telemetry, the keys, the logger and the context Stopping.
func NewProbes(o Options) *echo.Echo {
	o.complete()
	return o.probes()
}

func (o Options) probes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = errorHandler(o.Logger)
	e.Use(observe(o))
	e.GET("/healthz", func(c echo.Context) error { return c.JSON(http.StatusOK, state{"ok"}) })
	e.GET("/readyz", o.ready)
	if o.Telemetry != nil {
		e.GET("/metrics", echo.WrapHandler(o.Telemetry.Handler()), o.gateOf(auth.LastKnown(o.Keys)).Guard(auth.Read))
	}
	return e
}

// complete fills in what may be left out.
func (o *Options) complete() {
	if o.Keys == nil {
		o.Keys = access.NewKeys(o.Pool, o.Log.Now)
	}
}

// gate is how requests are let in.
func (o *Options) gate() *auth.Gate {
	o.complete()
	return o.gateOf(o.Keys)
}

// gateOf is a gate for those keys, besides that of the environment.
func (o *Options) gateOf(keys auth.Keys) *auth.Gate {
	return auth.New(auth.Options{Keys: keys, EnvironmentKey: o.APIKey, Open: o.Open, Local: o.Local, Now: o.Log.Now})
}

// New assembles the HTTP server.
func New(o Options) *echo.Echo { return o.server(o.gate()) }

func (o Options) server(gate *auth.Gate) *echo.Echo {
	e := o.probes()
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		LogErrorFunc: func(c echo.Context, err error, stack []byte) error {
			o.Logger.ErrorContext(c.Request().Context(), "panic", "error", err, "stack", string(stack))
			return err
		},
	}))
	e.Use(limitBody)

	e.GET("/clients/world.tgz", worldPackage)

	if o.Function != nil {
		o.Function.register(e, gate.Guard(auth.Invoke), o.Keys)
	}
	admit := newAdmission(o.Requests, o.RequestMemory).middleware
	(&wire.Server{
		Log: o.Log, Streams: o.Streams, Queue: o.Queue, Reader: o.Pool, Logger: o.Logger, Draining: o.Draining,
		Problem: func(err error) (int, string, string) {
			p := problemOf(err)
			return p.status, p.code, p.message
		},
	}).Register(gate.Group(e, sdkPath, admit))
	e.GET(nativePath+"/openapi.json", rest.Document)
	secrets := eventlog.NewSecrets(o.Pool, o.Log.Now)
	(&rest.Server{
		Log: o.Log, Streams: o.Streams, Queue: o.Queue, Runs: engine.New(o.Queue, o.Log), Secrets: secrets,
		SigningKeys: eventlog.NewSigningKeys(o.Pool, o.Log.Now),
		Keys:        o.Keys, Projects: access.NewProjects(o.Pool, o.Log.Now), Allowed: o.Allowed,
		Reader: o.Pool, Logger: o.Logger, Draining: o.Draining,
	}).Register(gate.Group(e, nativePath, admit))
	(&webhook.Server{
		Log: o.Log, Streams: o.Streams, Secrets: secrets, Queue: o.Queue, Reader: o.Pool,
		Draining: o.Draining, Rates: o.HookRates, Allowed: o.Allowed, Passing: o.Telemetry.Pass,
	}).Register(e.Group(hooksPath), newAdmission(hookRequests, hookRequestMemory).middleware)
	return e
}

// limitBody bounds bodies, and tells what goes wrong with reading one from what goes wrong here.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.ContentLength > maxBody {
			return &http.MaxBytesError{Limit: maxBody}
		}
		r.Body = body{http.MaxBytesReader(c.Response().Writer, r.Body, maxBody)}
		return next(c)
	}
}

// errBodyLost says that a request's body did not come whole: its sender broke off, or breaks HTTP.
var errBodyLost = errors.New("the body did not come whole")

// body is a request's body, whose errors are those of its sender.
type body struct{ io.ReadCloser }

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var tooLarge *http.MaxBytesError
	if err != nil && err != io.EOF && !errors.As(err, &tooLarge) { //nolint:errorlint // EOF is never wrapped
		err = fmt.Errorf("%w: %w", errBodyLost, err)
	}
	return n, err
}

// state is the body of the probes.
type state struct {
	Status string `json:"status"`
}

// ready reports whether the server should be sent work, which it cannot do without the database.
func (o Options) ready(c echo.Context) error {
	unready := func(why string) error { return c.JSON(http.StatusServiceUnavailable, state{why}) }
	if o.Stopping.Err() != nil {
		return unready("stopping")
	}
	busy, wrong := databaseState(c.Request().Context(), o.Pool)
	if wrong != "" {
		return unready(wrong)
	}
	if o.Trouble != nil {
		if trouble := o.Trouble(); trouble != "" {
			return unready(trouble)
		}
	}
	if busy {
		return c.JSON(http.StatusOK, state{"busy"})
	}
	return c.JSON(http.StatusOK, state{"ok"})
}

// databaseState says what is wrong with the way to the database, if something is. A pool so busy that no
// connection came free for the question is fine as long as others that waited have got theirs: a connection
// comes back to the pool only after the database has answered on it.
func databaseState(ctx context.Context, pool *pgxpool.Pool) (busy bool, wrong string) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	served := pool.Stat().EmptyAcquireCount()
	conn, err := pool.Acquire(ctx)
	if err == nil {
		err = conn.Ping(ctx)
		conn.Release()
		if err != nil {
			return false, "database unreachable"
		}
		return false, ""
	}
	now := pool.Stat()
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return false, "database unreachable"
	case now.EmptyAcquireCount() > served:
		return true, ""
	case now.AcquiredConns() == now.MaxConns():
		return false, "no connection to the database is free"
	default:
		return false, "database unreachable"
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
