package handlers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/clients"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/ui"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/handlers/wire"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/world"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/schedule/scheduler"
	"github.com/stepwell-dev/stepwell/why/overview"
)

const (
	// sdkPath is the path of the Workflow SDK's protocol, and the end of WORKFLOW_VERCEL_BACKEND_URL.
	sdkPath = "/sdk"
	// nativePath is the path of the native API.
	nativePath = "/v1"
	// hooksPath is the path of public webhooks.
	hooksPath = "/hooks"

	// maxBody limits all request bodies. Payloads may have tens of megabytes.
	maxBody = 160 << 20
	// Public webhooks have separate limits, so that they take no capacity from authenticated clients.
	hookRequests      = 1000
	hookRequestMemory = 64 << 20
	readyTimeout      = 2 * time.Second // to get a connection and ping the database
)

// Options configures the HTTP server.
type Options struct {
	Pool *pgxpool.Pool
	// Replica answers reads that may be late; nil if there is none.
	Replica *cluster.Replica
	Log     *eventlog.Log
	Streams *read.Streams
	Queue   *queue.Queue
	// Keys are the API keys; nil means those in the pool's database.
	Keys *access.Keys
	// Encryption has the keys of payloads.
	Encryption *encryption.Keys
	// Archived reads the logs of archived runs; nil if there is no archive.
	Archived *runfile.Logs
	// Cell is that of the server; empty for none. Keys have the same.
	Cell entities.Cell
	// APIKey is an additional key, from the environment; empty for none.
	APIKey string
	// Open, Local and Recheck are those of [auth.Options].
	Open, Local bool
	Recheck     time.Duration
	// TrustedProxies are the networks of proxies whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix
	// Requests limits the concurrent requests, and RequestMemory the total bytes of their bodies, and of the payloads that
	// they read; 0 means the default. The requests that follow a stream or wait for a run do not count, but the payloads
	// that they read do.
	Requests, RequestMemory int64
	// Readers limits the requests of a project that follow something or wait for a run; 0 means the default.
	Readers int
	// Allowed lists the non-public addresses that deployments may have.
	Allowed egress.Allowed
	// PullByDefault lets apps of the Workflow SDK ask for their deliveries that are not configured to.
	PullByDefault bool
	// Fence serves runs of the Workflow SDK's spec version 9.
	Fence bool
	// HookRates limits the requests to webhooks.
	HookRates webhook.Rates
	// UI has the files of the dashboard, nil for none, and PublicURL is the address at which its browsers reach the
	// server; it may be empty.
	UI        fs.FS
	PublicURL string
	// Provider is the identity provider by which people sign in to the dashboard; nil for none.
	Provider ui.Provider
	// Telemetry observes the requests and serves the metrics; nil for neither.
	Telemetry *telemetry.Telemetry
	Logger    *slog.Logger
	// Version is that of the program; empty if unknown.
	Version string
	// Stopping is done when the server starts no more deliveries; from then on it is not ready. Draining is done when it
	// is about to stop answering; requests that follow a stream then end.
	Stopping, Draining context.Context
	// Function is the additional part of a server in function mode; nil for other servers.
	Function *Function
	// Unready returns why the server cannot work although the database is reachable; empty if it can. It may be nil.
	Unready func() string

	rejections *rejections
	runs       *engine.Engine
	sessions   *access.Sessions
}

// calls verifies the tokens of calls.
type calls struct {
	*engine.Engine
	*queue.Queue
}

// NewProbes returns an HTTP server that serves only the probes and, to clients with a key, the metrics. It needs only
// the options Pool, Log, Telemetry, Keys, Logger and Stopping.
func NewProbes(o Options) *echo.Echo {
	o.setDefaults()
	return o.probes()
}

func (o Options) probes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = errorHandler(o.Logger)
	e.JSONSerializer = rest.JSON{}
	e.IPExtractor = clientAddresses(o.TrustedProxies)
	e.Use(observe(o), o.rejections.middleware, o.worldVersion)
	e.GET("/healthz", func(c echo.Context) error { return c.JSON(http.StatusOK, probeStatus{Status: "ok"}) })
	e.GET("/readyz", o.ready)
	if o.Telemetry != nil {
		e.GET("/metrics", echo.WrapHandler(o.Telemetry.Handler()), o.authenticator(auth.LastKnown(o.Keys)).Require(auth.Read))
	}
	return e
}

// errWaiting refuses requests to a server that has not reached its database yet.
var errWaiting = &problem{
	status: http.StatusServiceUnavailable, code: "database_unavailable",
	message: "the server is starting, and waits for its database: try again", retryAfter: databaseRetry,
}

// NewWaiting returns what a server serves that has not reached its database yet: it lives, and is not ready. Requests
// are not logged: the server logs that it waits.
func NewWaiting() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = errorHandler(slog.New(slog.DiscardHandler))
	e.GET("/healthz", func(c echo.Context) error { return c.JSON(http.StatusOK, probeStatus{Status: "ok"}) })
	e.GET("/readyz", func(c echo.Context) error {
		return c.JSON(http.StatusServiceUnavailable, probeStatus{Status: "waiting for the database"})
	})
	e.RouteNotFound("/*", func(echo.Context) error { return errWaiting })
	return e
}

// setDefaults sets the defaults of optional fields.
func (o *Options) setDefaults() {
	if o.Keys == nil {
		o.Keys = access.NewKeys(o.Pool, o.Log.Now).InCell(o.Cell)
	}
	if o.Queue != nil { // servers of probes have none
		o.runs = engine.New(o.Queue, o.Log).InCell(o.Cell)
	}
	if o.Archived == nil {
		o.Archived = runfile.NewLogs(nil, atrest.Identity{})
	}
	o.sessions = access.NewSessions(o.Pool, o.APIKey, o.Log.Now).InCell(o.Cell)
	o.rejections = &rejections{logger: o.Logger, telemetry: o.Telemetry, now: o.Log.Now}
}

// authenticator returns an authenticator for the keys and the environment's key.
func (o Options) authenticator(keys auth.Keys) *auth.Authenticator {
	var functions auth.Calls
	if o.runs != nil {
		functions = calls{o.runs, o.Queue}
	}
	return auth.New(auth.Options{
		Keys: keys, Sessions: o.sessions, Calls: functions, EnvironmentKey: o.APIKey, Open: o.Open, Local: o.Local,
		Recheck: o.Recheck, Now: o.Log.Now, Rejected: o.rejections.add,
	})
}

// New returns the HTTP server.
func New(o Options) *echo.Echo {
	o.setDefaults()
	return o.server(o.authenticator(o.Keys))
}

func (o Options) server(a *auth.Authenticator) *echo.Echo {
	e := o.probes()
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		LogErrorFunc: func(c echo.Context, err error, stack []byte) error {
			return rescue.Caught(c.Request().Context(), o.Logger, "request", err, stack)
		},
	}))
	e.Use(limitBody)

	e.Match([]string{http.MethodGet, http.MethodHead}, "/clients/world.tgz", worldPackage)
	if o.UI != nil {
		o.dashboard(e, a)
	}

	if o.Function != nil {
		o.Function.register(e, a.Require(auth.Invoke), o.Keys)
	}
	project := func(c echo.Context) string { return string(auth.Project(c)) }
	admission := newAdmission(o.Requests, o.RequestMemory, o.Log.Now, project)
	admission.starts = newStarts(o.Stopping, startRoom(o.Queue), o.Log.Now, o.Telemetry)
	admit := admission.middleware
	count := newPayloads(o.RequestMemory, project).middleware
	readers := newReaders(o.Readers).middleware
	o.wire().Register(a.Group(e, sdkPath, admit, readers, count))
	e.GET(nativePath+"/openapi.json", rest.Document)
	e.GET(nativePath+"/flows/schema", rest.FlowSchema)
	secrets := admin.NewSecrets(o.Pool, o.Log.Now)
	limits := limit.NewStore(o.Pool, o.Log.Now)
	counts, signingKeys := stats.NewReader(o.Pool, o.Log.Now), admin.NewSigningKeys(o.Pool, o.Log.Now)
	(&rest.Server{
		Log: o.Log, Streams: o.Streams, Queue: o.Queue, Runs: o.runs, Secrets: secrets,
		Checker:   engine.NewChecker(o.Queue, queue.NewCaller(o.Allowed, o.Queue.NewSigner(o.Log.Now, o.Logger))),
		Scheduler: scheduler.New(o.Queue, o.Log), Flows: registry.New(o.Pool, func() time.Time { return o.Log.Now() }),
		Collector: collector.New(o.Queue, o.Log), Triggers: o.runs.Triggers(),
		Limits: limits, Maintainer: upkeep.NewMaintainer(o.Pool, o.Log.Now),
		SigningKeys: signingKeys, Keys: o.Keys,
		Archived: o.Archived, Encryption: o.Encryption, Projects: access.NewProjects(o.Pool, o.Log.Now),
		Sessions: o.sessions, Allowed: o.Allowed,
		Stats:    counts,
		Overview: overview.NewReader(o.Pool, counts, signingKeys, o.Log.Now), Reader: pg.NewPool(o.Pool), Replica: o.Replica,
		Logger: o.Logger, Draining: o.Draining, Version: o.Version, Cell: o.Cell, Viewers: o.viewers(),
	}).Register(a.Group(e, nativePath, admit, readers, count))
	(&webhook.Server{
		Log: o.Log, Streams: o.Streams, Secrets: secrets, Queue: o.Queue, Triggers: o.runs.Triggers(),
		Reader: pg.NewPool(o.Pool), Draining: o.Draining, Rates: o.HookRates, Allowed: o.Allowed, OnForward: o.Telemetry.Pass,
		Cell: o.Cell,
	}).Register(e.Group(hooksPath), newAdmission(hookRequests, hookRequestMemory, o.Log.Now, webhook.ProjectOf).middleware)
	return e
}

// wire returns the server of the Workflow SDK's protocol.
func (o Options) wire() *wire.Server {
	return &wire.Server{
		Log: o.Log, Streams: o.Streams, Queue: o.Queue, Reader: pg.NewPool(o.Pool), Logger: o.Logger, Draining: o.Draining,
		PullByDefault: o.PullByDefault, Fence: o.Fence, Clients: world.NewClients(),
		Problem: func(err error) wire.Problem {
			p := problemOf(err)
			w := wire.Problem{Status: p.status, Code: p.code, Message: p.message, RetryAfter: p.retryAfter}
			w.Counters, _ = errors.AsType[*entities.SupersededError](err)
			if claimed, ok := errors.AsType[*entities.HookClaimedError](err); ok {
				w.ClaimedBy = &claimed.By
			}
			return w
		},
	}
}

// World returns what makes deliveries to apps with a client of their own, and carries out their answers. It needs only
// the options Pool, Log, Queue and Logger.
func World(o Options) queue.World { return o.wire() }

// viewers returns the limit of live views. A server in function mode has none: a connection that is held costs money.
func (o Options) viewers() int {
	if o.Function != nil {
		return -1
	}
	return 0
}

// dashboard adds the dashboard. A public URL that is not one is an error of the configuration, which cmd has checked.
func (o Options) dashboard(e *echo.Echo, a *auth.Authenticator) {
	s, err := ui.New(ui.Options{
		Files: o.UI, PublicURL: o.PublicURL, Sessions: o.sessions, Open: o.Open, Version: o.Version, Now: o.Log.Now,
		Provider: o.Provider, People: o.Keys, Refused: o.rejections.add,
	})
	if err != nil {
		panic(err)
	}
	e.Pre(s.Rewrite)
	s.Register(e, a)
}

// probeStatus is the body of the probes.
type probeStatus struct {
	Status string `json:"status"`
	// Replica is why lists are read from the primary although there is a replica.
	Replica string `json:"replica,omitempty"`
}

// ready answers the readiness probe: without the database, the server cannot work.
func (o Options) ready(c echo.Context) error {
	unready := func(reason string) error { return c.JSON(http.StatusServiceUnavailable, probeStatus{Status: reason}) }
	if o.Stopping.Err() != nil {
		return unready("stopping")
	}
	busy, problem := databaseState(c.Request().Context(), o.Pool)
	if problem == "" && o.Unready != nil {
		problem = o.Unready()
	}
	switch {
	case problem != "":
		return unready(problem)
	case busy:
		return c.JSON(http.StatusOK, probeStatus{Status: "busy"})
	default:
		return c.JSON(http.StatusOK, probeStatus{"ok", o.replicaProblem()})
	}
}

// replicaProblem returns why there is no reading from the replica, which keeps nobody from anything; empty if there is.
func (o Options) replicaProblem() string {
	if o.Replica == nil {
		return ""
	}
	if err := o.Replica.Problem(); err != nil {
		return err.Error()
	}
	return ""
}

// databaseState returns why the database is not reachable; empty if it is. If the pool has no free connection before
// the timeout, it is busy rather than broken as long as other requests get connections: a connection returns to the
// pool only after the database has answered on it.
func databaseState(ctx context.Context, pool *pgxpool.Pool) (busy bool, problem string) {
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

// worldVersion tells clients of @stepwell/world which version of their protocol the server speaks, and which spec
// version of the Workflow SDK is the newest that it serves.
func (o Options) worldVersion(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if strings.HasPrefix(c.Request().URL.Path, sdkPath+"/world/") {
			c.Response().Header().Set(world.Header, strconv.Itoa(world.Version))
			c.Response().Header().Set(world.SpecHeader, strconv.Itoa(entities.NewestSpec(o.Fence)))
		}
		return next(c)
	}
}

// worldTarball is the npm package and its entity tag, made once.
var worldTarball = sync.OnceValues(func() (packed struct {
	data []byte
	etag string
}, err error) {
	var b bytes.Buffer
	if err := clients.WorldTarball(&b); err != nil {
		return packed, err
	}
	packed.data, packed.etag = b.Bytes(), fmt.Sprintf(`"%x"`, sha256.Sum256(b.Bytes()))
	return packed, nil
})

// worldPackage serves the npm package that connects an app to this server: npm i http://HOST:PORT/clients/world.tgz.
func worldPackage(c echo.Context) error {
	packed, err := worldTarball()
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, "application/gzip")
	h.Set("ETag", packed.etag)
	http.ServeContent(c.Response(), c.Request(), "", time.Time{}, bytes.NewReader(packed.data))
	return nil
}
