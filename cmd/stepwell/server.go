package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/prober"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/schedule/scheduler"
)

// role selects the parts of the server that a process runs.
type role string

const (
	roleAll      role = "all"
	roleAPI      role = "api"      // serves requests, delivers nothing
	roleWorker   role = "worker"   // delivers, serves only probes and metrics
	roleFunction role = "function" // serves requests and delivers during drain requests; idle in between
)

// shutdownTimeout is how long requests may take to finish at shutdown.
const shutdownTimeout = 3 * time.Second

// sessionTimeouts bound how long a request waits for the database, and how long a hanging process can hold locks. All
// statements of the server are short.
var sessionTimeouts = map[string]string{
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "15s",
}

// setSessionTimeouts applies the timeouts that the database URL does not set.
func setSessionTimeouts(c *pgxpool.Config) {
	for name, value := range sessionTimeouts {
		if _, ok := c.ConnConfig.RuntimeParams[name]; !ok {
			c.ConnConfig.RuntimeParams[name] = value
		}
	}
}

// server is a running Stepwell. The zero value with config, role and logger set can be started.
type server struct {
	config config
	role   role
	logger *slog.Logger
	// local means that the server is open because it listens on a loopback address.
	local bool
	// pullByDefault lets apps of the Workflow SDK ask for their deliveries by default.
	pullByDefault bool

	pool        *pgxpool.Pool
	divided     *pg.Connections
	primary     *pg.Primary
	commits     *pg.CommitProbe // nil in role function
	allowed     egress.Allowed
	disk        diskMonitor
	keys        *access.Keys
	hub         *pg.Hub
	clock       *pg.Clock
	log         *eventlog.Log
	traces      *telemetry.Traces // nil if disabled
	telemetry   *telemetry.Telemetry
	worker      *queue.Worker  // nil in roles api and function
	drainer     *queue.Drainer // nil except in role function
	http        *http.Server
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

// start migrates the database and starts serving and delivering. On an error it stops what it has started.
func (s *server) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.stop(context.WithoutCancel(ctx))
		}
	}()
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.keys = access.NewKeys(s.pool, time.Now)
	if err := s.requireKey(ctx); err != nil {
		return err
	}
	s.hub = s.newHub()
	q, err := queue.New(s.pool, s.config.Schema, s.hub)
	if err != nil {
		return err
	}
	s.telemetry = s.newTelemetry(q)
	s.log = eventlog.New(s.pool, s.hub, q, s.clock.Now, eventlog.WithObserver(s.telemetry), eventlog.WithGroup(q.Group()))
	if s.allowed, err = s.config.allowed(); err != nil {
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
	// Listen before delivering: functions call the API while they run.
	if err := s.listen(ctx, s.handler(ctx, q, function)); err != nil {
		return err
	}
	if s.role == roleAPI || s.role == roleFunction {
		return nil
	}
	return s.untilAvailable(ctx, func() error { return s.startWorker(ctx, q) })
}

// connect migrates the database and opens the pool.
func (s *server) connect(ctx context.Context) (err error) {
	slog.SetDefault(s.logger) // for what no logger is passed to, such as package rescue
	if err := s.awaitDatabase(ctx); err != nil {
		return err
	}
	s.primary = pg.NewPrimary(time.Now, s.logger)
	if err := s.primary.Find(ctx, s.config.DatabaseURL); err != nil {
		return err
	}
	migrator := migrations.Migrator{Logger: s.logger}
	if err := migrator.Up(ctx, s.config.DatabaseURL, s.config.Schema, s.primary.Install); err != nil {
		return err
	}
	s.disk.now, s.divided = time.Now, pg.NewConnections(time.Now)
	if s.traces == nil { // tests may set it
		if s.traces, err = s.newTraces(ctx); err != nil {
			return err
		}
	}
	s.pool, err = migrations.Pool(ctx, s.config.DatabaseURL, s.config.Schema,
		s.primary.Install, pg.InstallEpochs, setSessionTimeouts, pg.InstallDeadlines, s.disk.install, s.divided.Install,
		s.suspendPool, traceQueries(s.traces))
	if err != nil {
		return err
	}
	if s.role != roleFunction {
		s.commits = pg.NewCommitProbe(s.pool.Config().ConnConfig, s.primary, time.Now, s.logger)
	}
	started := time.Now()
	s.clock = pg.NewClock(func() time.Duration { return time.Since(started) })
	return s.clock.Compare(ctx, s.pool)
}

// problem returns why the server cannot work although the database is reachable, or "".
func (s *server) problem() string {
	if full := s.disk.problem(); full != "" || s.commits == nil {
		return full
	}
	return s.commits.Problem()
}

// startWorker starts delivering.
func (s *server) startWorker(ctx context.Context, q *queue.Queue) error {
	options, err := s.workerOptions(ctx, q)
	if err != nil {
		return err
	}
	worker, err := q.NewWorker(s.config.Schema, options)
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
func (s *server) tellUnknown(ctx context.Context, e *engine.Engine) error {
	unknown, err := e.UnknownFlows(ctx)
	if err == nil && len(unknown) > 0 {
		s.logger.WarnContext(ctx, "flows have rules that this server does not know: update it", "deployments", unknown)
	}
	return err
}

// registerDeployments registers the deployments in the configuration.
func (s *server) registerDeployments(ctx context.Context, q *queue.Queue) error {
	for id, deploymentURL := range s.config.Deployments {
		if u, err := url.Parse(deploymentURL); err == nil {
			if err := s.allowed.CheckURL(u); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
		_, err := q.PutDeployment(ctx, entities.DefaultProject, id, deploymentURL)
		if errors.Is(err, queue.ErrNotRescheduled) {
			s.logger.WarnContext(ctx, "STEPWELL_DEPLOYMENTS", "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *server) workerOptions(ctx context.Context, q *queue.Queue) (queue.WorkerOptions, error) {
	retention, err := s.retention(ctx)
	if err != nil {
		return queue.WorkerOptions{}, err
	}
	runs := engine.New(q, s.log).WithPublicURL(s.config.PublicURL)
	if err := s.tellUnknown(ctx, runs); err != nil {
		return queue.WorkerOptions{}, err
	}
	work := runs.Handlers()
	work[message.WorkSchedule] = scheduler.New(q, s.log).Handler()
	work[message.WorkCollection] = collector.New(q, s.log).Handler()
	work[message.WorkProbe] = prober.New(q).Handler()
	return queue.WorkerOptions{
		Deliveries: s.config.Deliveries, MaxDeliveries: s.config.MaxDeliveries,
		FailureWindow: s.config.FailureWindow, BodyMemory: s.config.BodyMemory << 20,
		Grace: s.config.Grace, Logger: s.logger, Allowed: s.allowed,
		Signer:   q.NewSigner(time.Now, s.logger),
		Handlers: work, World: handlers.World(handlers.Options{
			Pool: s.pool, Log: s.log, Queue: q, Logger: s.logger, Fence: s.config.SpecFence,
		}), Retention: retention, Stats: stats.NewFollower(s.pool), Observer: s.telemetry,
		Program: cluster.Program{Version: version(), Commit: build().Commit, Role: string(s.role)},
	}, nil
}

// startBackground starts the hub and the task that records when keys are used. In function mode nothing may run
// between requests.
func (s *server) startBackground(ctx context.Context) {
	if s.role == roleFunction {
		return
	}
	ctx, s.stopHub = context.WithCancel(context.WithoutCancel(ctx))
	s.background(ctx, "hub", func() { s.hub.Run(ctx) })
	s.background(ctx, "clock", func() { s.clock.Run(ctx, s.pool) })
	s.background(ctx, "keys", func() { s.keys.Run(ctx, s.logger) })
	s.background(ctx, "commits", func() { s.commits.Run(ctx) })
	s.background(ctx, "watch", func() { s.primary.Watch(ctx, s.pool.Config().ConnConfig) })
	s.background(ctx, "survey", func() { s.primary.KeepSurveying(ctx, s.pool.Config().ConnConfig) })
}

// background runs a task that ends with its context.
func (s *server) background(ctx context.Context, name string, run func()) {
	s.running.Go(func() { rescue.Loop(ctx, name, run) })
}

func (s *server) handler(ctx context.Context, q *queue.Queue, function *handlers.Function) http.Handler {
	var stopping, draining context.Context
	stopping, s.setUnready = context.WithCancel(context.WithoutCancel(ctx))
	draining, s.endStreams = context.WithCancel(context.WithoutCancel(ctx))
	options := handlers.Options{
		Pool:           s.pool,
		Log:            s.log,
		Streams:        read.NewStreams(s.pool, s.hub, time.Now),
		Queue:          q,
		Keys:           s.keys,
		APIKey:         s.config.APIKey,
		Allowed:        s.allowed,
		PullByDefault:  s.pullByDefault,
		Fence:          s.config.SpecFence,
		Open:           s.config.Open,
		Local:          s.local,
		TrustedProxies: s.config.TrustedProxies,
		Requests:       s.config.Requests, RequestMemory: s.config.RequestMemory << 20,
		Readers:   s.config.Readers,
		UI:        s.config.UI,
		PublicURL: s.config.PublicURL,
		Version:   version(),
		Telemetry: s.telemetry, Logger: s.logger,
		Stopping: stopping,
		Draining: draining,
		Function: function,
		Unready:  s.problem,
	}
	if s.role == roleWorker {
		return handlers.NewProbes(options)
	}
	return handlers.New(options)
}

func (s *server) listen(ctx context.Context, h http.Handler) error {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w (set another address with STEPWELL_LISTEN)", err)
	}
	s.addr = listener.Addr().String()
	s.http = &http.Server{
		Handler:           limitStalls(h, writeTimeout),
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeader,
		IdleTimeout:       idleTimeout,
		// Go's own answer to OPTIONS * waits for the request's body without a time limit.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	if err := s.useTLS(s.http); err != nil {
		return errors.Join(err, listener.Close())
	}
	newConnections(maxConnections).install(s.http)
	s.httpDone = make(chan error, 1)
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") } // the configuration has the certificate
	}
	s.running.Go(func() { s.httpDone <- serve(listener) })
	s.logger.InfoContext(ctx, "listening", "addr", s.addr, "scheme", s.config.scheme(), "role", s.role)
	return nil
}

// serve waits until ctx is done or the HTTP server fails, and stops the server.
func (s *server) serve(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
	case httpErr := <-s.httpDone:
		err = fmt.Errorf("serve: %w", httpErr)
	}
	s.logger.InfoContext(ctx, "stopping")
	s.stop(context.WithoutCancel(ctx))
	return err
}

// stop stops the server in order: it becomes unready and takes no new work; deliveries get their grace period, during
// which the API still serves the functions; unfinished ones keep their leases; then everything is closed.
func (s *server) stop(ctx context.Context) {
	if s.setUnready != nil {
		s.setUnready()
	}
	if s.worker != nil {
		if err := s.worker.Stop(ctx); err != nil {
			s.logger.ErrorContext(ctx, "stop deliveries", "error", err)
		}
	}
	if s.drainer != nil {
		s.drainer.Stop()
	}
	if s.endStreams != nil {
		s.endStreams()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
		defer cancel()
		if err := s.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.http.Close()
		}
	}
	if s.stopHub != nil {
		s.stopHub()
	}
	s.running.Wait()
	if s.pool != nil {
		s.pool.Close()
	}
	s.stopTraces(ctx)
}
