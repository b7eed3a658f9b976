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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// role is which parts of the server a process runs.
type role string

const (
	roleAll    role = "all"
	roleAPI    role = "api"    // serves requests, delivers nothing
	roleWorker role = "worker" // delivers, serves nothing but the probes
	// serves requests, and delivers while one asks for it; nothing runs between them
	roleFunction role = "function"
)

const (
	readHeaderTimeout = 10 * time.Second
	drainTimeout      = 3 * time.Second
	idleTimeout       = 2 * time.Minute // of connections between requests
)

// timeouts bound what a request may wait for the database, and how long others may wait for a transaction
// whose process hangs. All of a server's statements are short.
var timeouts = map[string]string{
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "15s",
}

// impatient gives a pool the timeouts, except where the database URL has its own.
func impatient(c *pgxpool.Config) {
	for name, value := range timeouts {
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
	// local says that it is open since only this machine can connect to it.
	local bool

	pool      *pgxpool.Pool
	allowed   egress.Allowed
	disk      disk
	keys      *access.Keys
	hub       *eventlog.Hub
	log       *eventlog.Log
	traces    *telemetry.Traces // nil when there are none
	telemetry *telemetry.Telemetry
	worker    *queue.Worker  // nil unless it delivers by itself
	drainer   *queue.Drainer // nil unless in role function
	http      *http.Server
	addr      string             // where it listens, once started
	stopping  context.CancelFunc // makes it unready
	drain     context.CancelFunc // cuts off those who follow streams
	stopHub   context.CancelFunc
	running   sync.WaitGroup
	httpDone  chan error
}

// start migrates the database and begins to serve and deliver. On an error nothing is left running.
func (s *server) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.stop(context.WithoutCancel(ctx))
		}
	}()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.admission(ctx); err != nil {
		return err
	}
	s.hub = s.newHub()
	q, err := queue.New(s.pool, s.config.Schema, s.hub)
	if err != nil {
		return err
	}
	s.telemetry = s.newTelemetry(q)
	s.log = eventlog.New(s.pool, s.hub, q, time.Now, eventlog.WithObserver(s.telemetry), eventlog.WithGroup(q.Group()))
	if s.allowed, err = s.config.allowed(); err != nil {
		return err
	}
	if err := s.register(ctx, q); err != nil {
		return fmt.Errorf("STEPWELL_DEPLOYMENTS: %w", err)
	}
	function, err := s.function(ctx, q)
	if err != nil {
		return err
	}
	s.runHub(ctx)
	// Listen before delivering: functions answer to the API.
	if err := s.listen(ctx, s.handler(ctx, q, function)); err != nil {
		return err
	}
	if s.role == roleAPI || s.role == roleFunction {
		return nil
	}
	return s.work(ctx, q)
}

// connect migrates the database and opens the pool.
func (s *server) connect(ctx context.Context) (err error) {
	if err := migrations.Up(ctx, s.config.DatabaseURL, s.config.Schema); err != nil {
		return err
	}
	s.disk.now = time.Now
	if s.traces == nil { // a test may have brought some
		if s.traces, err = s.newTraces(ctx); err != nil {
			return err
		}
	}
	s.pool, err = migrations.Pool(ctx, s.config.DatabaseURL, s.config.Schema,
		impatient, s.disk.watch, s.lean, traced(s.traces))
	return err
}

// work begins to deliver.
func (s *server) work(ctx context.Context, q *queue.Queue) error {
	options, err := s.deliveries(ctx, q)
	if err != nil {
		return err
	}
	worker, err := queue.NewWorker(q, s.config.Schema, options)
	if err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	s.worker = worker
	return nil
}

// register registers the deployments of the configuration.
func (s *server) register(ctx context.Context, q *queue.Queue) error {
	for id, where := range s.config.Deployments {
		if u, err := url.Parse(where); err == nil {
			if err := s.allowed.CheckURL(u); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
		_, err := q.PutDeployment(ctx, entities.DefaultProject, id, where)
		if errors.Is(err, queue.ErrNotHurried) {
			s.logger.WarnContext(ctx, "STEPWELL_DEPLOYMENTS", "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// deliveries is how to deliver.
func (s *server) deliveries(ctx context.Context, q *queue.Queue) (queue.WorkerOptions, error) {
	retention, err := s.retention(ctx)
	return queue.WorkerOptions{
		Deliveries: s.config.Deliveries, MaxDeliveries: s.config.MaxDeliveries,
		FailureWindow: s.config.FailureWindow, BodyMemory: s.config.BodyMemory << 20,
		Grace: s.config.Grace, Logger: s.logger, Allowed: s.allowed,
		Signer:   queue.NewSigner(q, time.Now, s.logger),
		Handlers: engine.New(q, s.log).Handlers(), Retention: retention, Observer: s.telemetry,
	}, err
}

func (s *server) runHub(ctx context.Context) {
	if s.role == roleFunction {
		return
	}
	ctx, s.stopHub = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.hub.Run(ctx) })
	s.running.Go(func() { s.keys.Run(ctx, s.logger) })
}

func (s *server) handler(ctx context.Context, q *queue.Queue, function *handlers.Function) http.Handler {
	var stopping, draining context.Context
	stopping, s.stopping = context.WithCancel(context.WithoutCancel(ctx))
	draining, s.drain = context.WithCancel(context.WithoutCancel(ctx))
	options := handlers.Options{
		Pool:     s.pool,
		Log:      s.log,
		Streams:  eventlog.NewStreams(s.pool, s.hub, time.Now),
		Queue:    q,
		Keys:     s.keys,
		APIKey:   s.config.APIKey,
		Allowed:  s.allowed,
		Open:     s.config.Open,
		Local:    s.local,
		Requests: s.config.Requests, RequestMemory: s.config.RequestMemory << 20,
		Telemetry: s.telemetry, Logger: s.logger,
		Stopping: stopping,
		Draining: draining,
		Function: function,
		Trouble:  s.disk.trouble,
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
		return fmt.Errorf("listen: %w (STEPWELL_LISTEN chooses another address)", err)
	}
	s.addr = listener.Addr().String()
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	s.httpDone = make(chan error, 1)
	s.running.Go(func() { s.httpDone <- s.http.Serve(listener) })
	s.logger.InfoContext(ctx, "listening", "addr", s.addr, "role", s.role)
	return nil
}

// serve returns when the context ends, or with an error when the server cannot go on, and has stopped it.
func (s *server) serve(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
	case failure := <-s.httpDone:
		err = fmt.Errorf("serve: %w", failure)
	}
	s.logger.InfoContext(ctx, "stopping")
	s.stop(context.WithoutCancel(ctx))
	return err
}

// stop takes on no new work, gives deliveries under way their grace period, while which the API goes on
// answering the functions, leaves the leases of the rest with them, and closes everything.
func (s *server) stop(ctx context.Context) {
	if s.stopping != nil {
		s.stopping()
	}
	if s.worker != nil {
		if err := s.worker.Stop(ctx); err != nil {
			s.logger.ErrorContext(ctx, "stop deliveries", "error", err)
		}
	}
	if s.drainer != nil {
		s.drainer.Stop()
	}
	if s.drain != nil {
		s.drain()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(ctx, drainTimeout)
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
