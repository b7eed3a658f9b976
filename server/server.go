// Package server wires the packages together to one Stepwell process: it opens the database, serves the API and
// delivers. The command and package embedded start it; it has no dashboard, no command line and no settings of its own.
// It may import everything but those.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/ui"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/prober"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/schedule/scheduler"
)

// Role selects the parts of the server that a process runs.
type Role string

// The roles.
const (
	RoleAll      Role = "all"
	RoleAPI      Role = "api"      // serves requests, delivers nothing
	RoleWorker   Role = "worker"   // delivers, serves only probes and metrics
	RoleFunction Role = "function" // serves requests and delivers during drain requests; idle in between
)

// ShutdownTimeout is how long requests may take to finish at shutdown.
const ShutdownTimeout = 3 * time.Second

// SessionTimeouts bound how long a request waits for the database, and how long a hanging process can hold locks. All
// statements of the server are short.
var SessionTimeouts = map[string]string{
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "15s",
}

// setSessionTimeouts applies the timeouts that the database URL does not set.
func setSessionTimeouts(c *pgxpool.Config) {
	for name, value := range SessionTimeouts {
		if _, ok := c.ConnConfig.RuntimeParams[name]; !ok {
			c.ConnConfig.RuntimeParams[name] = value
		}
	}
}

// Options configures a [Server].
type Options struct {
	Config
	Role   Role
	Logger *slog.Logger
	// Build is what the program was built from.
	Build telemetry.Build
	// UI has the files of the dashboard; nil for none.
	UI fs.FS
	// Provider is the identity provider by which people sign in to the dashboard; nil for none.
	Provider ui.Provider
	// Traces are the caller's, who shuts them down after the server; nil for none.
	Traces *telemetry.Traces
	// Archive opens the archive of runs; nil if there is none.
	Archive func(*pgxpool.Pool) (Archive, error)
	// Objects has the payloads that are larger than PayloadsOver; nil if all are in the database.
	Objects blob.Objects
	// Install changes the configuration of each connection to the database, before the server does; nil for nothing.
	Install func(*pgxpool.Config)
	// Migrated tells that the caller has migrated the schema.
	Migrated bool
	// Hosted is an app in this process; nil for none.
	Hosted *queue.Hosted
	// Local means that the server is open because it listens on a loopback address.
	Local bool
	// PullByDefault lets apps of the Workflow SDK ask for their deliveries by default.
	PullByDefault bool
}

// Archive has the files of runs that were deleted.
type Archive interface {
	// Check fails if runs cannot be stored.
	Check(ctx context.Context) error
	// Store stores a run before it is deleted, and returns how large it is.
	Store(ctx context.Context, project entities.Project, id entities.RunID) (upkeep.RunSize, error)
	// Open opens the file of a run.
	Open(ctx context.Context, project entities.Project, id entities.RunID) (io.ReadCloser, error)
}

// Server is a running Stepwell. The zero value with the options set can be started.
type Server struct {
	Options

	pool *pgxpool.Pool
	// sessions opens connections that keep their session: the pool, or one that leads past a pooler. It is nil if there
	// are none.
	sessions    *pgxpool.Pool
	replica     *cluster.Replica // nil if there is none, with its pool
	replicaPool *pgxpool.Pool
	divided     *pg.Connections
	primary     *pg.Primary
	commits     *pg.CommitProbe // nil in role function
	allowed     egress.Allowed
	disk        diskMonitor
	keys        *access.Keys
	encryption  *encryption.Keys
	payloads    *blob.Codec
	blobs       *blob.Store // nil if all payloads are in the database
	archive     Archive     // nil if runs are not archived
	archived    *runfile.Logs
	hub         *pg.Hub
	clock       *pg.Clock
	log         *eventlog.Log
	telemetry   *telemetry.Telemetry
	worker      *queue.Worker  // nil in roles api and function
	runs        *engine.Engine // as worker
	drainer     *queue.Drainer // nil except in role function
	api         http.Handler
	http        *http.Server // nil if the server does not listen
	certificate *certificate // nil for plain HTTP
	// archiveFailures counts the runs that could not be archived.
	archiveFailures atomic.Int64
	addr            string             // of the listener
	setUnready      context.CancelFunc // makes /readyz fail
	endStreams      context.CancelFunc // ends responses that follow a stream or log
	stopHub         context.CancelFunc
	running         sync.WaitGroup
	httpDone        chan error
}

// Start migrates the database and starts serving and delivering. On an error it stops what it has started.
func (s *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.Stop(context.WithoutCancel(ctx))
		}
	}()
	ctx = rescue.WithLogger(ctx, s.Logger)
	if err := s.connect(ctx); err != nil {
		return err
	}
	if s.archived, err = s.openArchive(); err != nil {
		return err
	}
	s.keys = access.NewKeys(s.pool, time.Now).InCell(s.Cell)
	if err := s.requireKey(ctx); err != nil {
		return err
	}
	s.hub = s.newHub()
	q, err := queue.New(s.pool, s.Schema, s.hub)
	if err != nil {
		return err
	}
	q.UseSessions(s.sessions)
	q.UsePayloads(s.payloads)
	s.telemetry = s.newTelemetry(q)
	if s.Objects != nil {
		s.blobs = blob.New(s.pool, s.payloads, s.PayloadsOver)
	}
	s.log = eventlog.New(s.pool, s.hub, q, s.clock.Now, eventlog.WithObserver(s.telemetry), eventlog.WithGroup(q.Group()),
		eventlog.WithPayloads(s.payloads), eventlog.WithBlobs(s.blobs))
	if s.allowed, err = s.Allowed(); err != nil {
		return err
	}
	if err := s.registerDeployments(ctx, q); err != nil {
		return fmt.Errorf("STEPWELL_DEPLOYMENTS: %w", err)
	}
	function, err := s.newFunction(ctx, q)
	if err != nil {
		return err
	}
	s.startBackground(ctx)
	s.api = s.handler(ctx, q, function)
	// Listen before delivering: functions call the API while they run.
	if err := s.listen(ctx, s.api); err != nil {
		return err
	}
	if s.Hosted != nil {
		q.Host(s.Hosted)
	}
	if s.Role == RoleAPI || s.Role == RoleFunction {
		return nil
	}
	return s.untilAvailable(ctx, func() error { return s.startWorker(ctx, q) })
}

// install changes the configuration of connections as the caller wants it.
func (s *Server) install(c *pgxpool.Config) {
	if s.Install != nil {
		s.Install(c)
	}
}

// problem returns why the server cannot work although the database is reachable, or "".
func (s *Server) problem() string {
	if full := s.disk.problem(); full != "" || s.commits == nil {
		return full
	}
	return s.commits.Problem()
}

// startWorker starts delivering.
func (s *Server) startWorker(ctx context.Context, q *queue.Queue) error {
	options, err := s.workerOptions(ctx, q)
	if err != nil {
		return err
	}
	worker, err := q.NewWorker(s.Schema, options)
	if err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	s.worker = worker
	return nil
}

// tellUnknown logs which flows have runs that this server leaves to a later version of it.
func (s *Server) tellUnknown(ctx context.Context, e *engine.Engine) error {
	unknown, err := e.UnknownFlows(ctx)
	if err == nil && len(unknown) > 0 {
		s.Logger.WarnContext(ctx, "flows have rules that this server does not know: update it", "deployments", unknown)
	}
	return err
}

// registerDeployments registers the deployments in the configuration.
func (s *Server) registerDeployments(ctx context.Context, q *queue.Queue) error {
	for id, deploymentURL := range s.Deployments {
		if u, err := url.Parse(deploymentURL); err == nil {
			if err := s.allowed.CheckURL(u); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
		_, err := q.PutDeployment(ctx, entities.DefaultProject, id, deploymentURL)
		if errors.Is(err, queue.ErrNotRescheduled) {
			s.Logger.WarnContext(ctx, "STEPWELL_DEPLOYMENTS", "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) workerOptions(ctx context.Context, q *queue.Queue) (queue.WorkerOptions, error) {
	retention, err := s.retention(ctx)
	if err != nil {
		return queue.WorkerOptions{}, err
	}
	s.runs = engine.New(q, s.log).WithPublicURL(s.PublicURL).InCell(s.Cell)
	if err := s.tellUnknown(ctx, s.runs); err != nil {
		return queue.WorkerOptions{}, err
	}
	work := s.runs.Handlers()
	work[message.WorkSchedule] = scheduler.New(q, s.log).Handler()
	work[message.WorkCollection] = collector.New(q, s.log).Handler()
	work[message.WorkProbe] = prober.New(q).Handler()
	options := s.handlerOptions(q)
	options.Stopping, options.Draining = context.WithoutCancel(ctx), context.WithoutCancel(ctx)
	work[message.WorkRequest] = handlers.Requests(options)
	return queue.WorkerOptions{
		Deliveries: s.Deliveries, MaxDeliveries: s.MaxDeliveries,
		FailureWindow: s.FailureWindow, BodyMemory: s.BodyMemory << 20,
		Grace: s.Grace, Logger: s.Logger, Allowed: s.allowed,
		Signer:   q.NewSigner(time.Now, s.Logger),
		Handlers: work, World: handlers.World(options),
		Retention: retention, Stats: stats.NewFollower(s.pool), Observer: s.telemetry,
		Program: cluster.Program{
			Version: s.Build.Version, Commit: s.Build.Commit, Role: string(s.Role), Cell: s.Cell,
		},
	}, nil
}

// startBackground starts the hub and the task that records when keys are used. In function mode nothing may run
// between requests.
func (s *Server) startBackground(ctx context.Context) {
	if s.Role == RoleFunction {
		return
	}
	ctx, s.stopHub = context.WithCancel(context.WithoutCancel(ctx))
	if s.sessions != nil {
		s.background(ctx, "hub", func() { s.hub.Run(ctx) })
	}
	s.background(ctx, "clock", func() { s.clock.Run(ctx, s.pool) })
	s.background(ctx, "keys", func() { s.keys.Run(ctx, s.Logger) })
	s.background(ctx, "commits", func() { s.commits.Run(ctx) })
	if s.replica != nil {
		s.background(ctx, "replica", func() { s.replica.Run(ctx) })
	}
	s.background(ctx, "watch", func() { s.primary.Watch(ctx, s.pool.Config().ConnConfig) })
	s.background(ctx, "survey", func() { s.primary.KeepSurveying(ctx, s.pool.Config().ConnConfig) })
}

// background runs a task that ends with its context.
func (s *Server) background(ctx context.Context, name string, run func()) {
	s.running.Go(func() { rescue.Loop(ctx, name, run) })
}

func (s *Server) handler(ctx context.Context, q *queue.Queue, function *handlers.Function) http.Handler {
	options := s.handlerOptions(q)
	options.Function = function
	options.Stopping, s.setUnready = context.WithCancel(context.WithoutCancel(ctx))
	options.Draining, s.endStreams = context.WithCancel(context.WithoutCancel(ctx))
	if s.Role == RoleWorker {
		return handlers.NewProbes(options)
	}
	return handlers.New(options)
}

// handlerOptions returns the options of all handlers of the process, without contexts.
func (s *Server) handlerOptions(q *queue.Queue) handlers.Options {
	return handlers.Options{
		Pool:           s.pool,
		Log:            s.log,
		Replica:        s.replica,
		Streams:        read.NewStreams(s.pool, s.hub, time.Now),
		Queue:          q,
		Keys:           s.keys,
		Encryption:     s.encryption,
		Archived:       s.archived,
		Cell:           s.Cell,
		APIKey:         s.APIKey,
		Allowed:        s.allowed,
		PullByDefault:  s.PullByDefault,
		Fence:          s.SpecFence,
		Open:           s.Open,
		Local:          s.Local,
		TrustedProxies: s.TrustedProxies,
		Requests:       s.Requests, RequestMemory: s.RequestMemory << 20,
		Readers:   s.Readers,
		UI:        s.UI,
		PublicURL: s.PublicURL, Provider: s.Provider,
		Version:   s.Build.Version,
		Telemetry: s.telemetry, Logger: s.Logger,
		Unready: s.problem,
	}
}

// listen serves the handler on the server's address, if it has one.
func (s *Server) listen(ctx context.Context, h http.Handler) error {
	if s.Listen == "" {
		return nil
	}
	var serve func() error
	var err error
	if s.http, serve, err = s.bind(ctx, h); err != nil {
		return err
	}
	s.httpDone = make(chan error, 1)
	s.running.Go(func() { s.httpDone <- serve() })
	s.Logger.InfoContext(ctx, "listening", "addr", s.addr, "scheme", s.Scheme(), "role", s.Role,
		"version", s.Build.Version, "commit", s.Build.Commit)
	return nil
}

// bind listens on the server's address. Serve then answers with the handler.
func (s *Server) bind(ctx context.Context, h http.Handler) (to *http.Server, serve func() error, err error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w (set another address with STEPWELL_LISTEN)", err)
	}
	s.addr = listener.Addr().String()
	to = &http.Server{
		Handler:           limitStalls(h, writeTimeout),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeader,
		IdleTimeout:       idleTimeout,
		// Go's own answer to OPTIONS * waits for the request's body without a time limit.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	if err := s.useTLS(to); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	newConnections(maxConnections).install(to)
	if to.TLSConfig != nil {
		return to, func() error { return to.ServeTLS(listener, "", "") }, nil // the configuration has the certificate
	}
	return to, func() error { return to.Serve(listener) }, nil
}

// Serve waits until ctx is done or the HTTP server fails, and stops the server.
func (s *Server) Serve(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
	case httpErr := <-s.httpDone:
		err = fmt.Errorf("serve: %w", httpErr)
	}
	s.Logger.InfoContext(ctx, "stopping")
	s.Stop(context.WithoutCancel(ctx))
	return err
}

// Stop stops the server in order: it becomes unready and takes no new work; deliveries get their grace period, during
// which the API still serves the functions; unfinished ones keep their leases; then everything is closed.
func (s *Server) Stop(ctx context.Context) {
	if s.setUnready != nil {
		s.setUnready()
	}
	if s.worker != nil {
		if err := s.worker.Stop(ctx); err != nil {
			s.Logger.ErrorContext(ctx, "stop deliveries", "error", err)
		}
	}
	if s.drainer != nil {
		s.drainer.Stop()
	}
	if s.endStreams != nil {
		s.endStreams()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(ctx, ShutdownTimeout)
		defer cancel()
		if err := s.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.http.Close()
		}
	}
	if s.stopHub != nil {
		s.stopHub()
	}
	s.running.Wait()
	if s.sessions != nil && s.sessions != s.pool {
		s.sessions.Close()
	}
	if s.replicaPool != nil {
		s.replicaPool.Close()
	}
	if s.encryption != nil {
		s.encryption.Close()
	}
	if s.pool != nil {
		s.pool.Close()
	}
}

// API returns the handler of all that the server serves; nil before the start.
func (s *Server) API() http.Handler { return s.api }

// Exchange carries out commands of a call to the hosted app; see [engine.Engine.ExchangeHere].
func (s *Server) Exchange(ctx context.Context, c token.Call, after int64, commands []byte) ([]byte, error) {
	return s.runs.ExchangeHere(ctx, c, after, commands)
}

// Addr returns the address at which the server listens; empty if it does not.
func (s *Server) Addr() string { return s.addr }

// Pool returns the connections to the database; nil before the start has opened them.
func (s *Server) Pool() *pgxpool.Pool { return s.pool }

// Telemetry returns what observes the server; nil before the start.
func (s *Server) Telemetry() *telemetry.Telemetry { return s.telemetry }
