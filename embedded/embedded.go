// Package embedded runs a server and a Go app in one process, on one Postgres. There is no HTTP between them: the
// server calls the app's handler, and the app the server's. Everything else is as with a server of its own: leases,
// retries, takeover, and the API.
//
// Any number of such processes, of servers without an app, and of apps behind a URL share a schema. The work of an
// embedded app is done by the processes that have the app, whichever of them is free.
//
// The package does nothing on its own: it handles no signals, changes nothing global, and logs only to the logger that
// it gets. It has neither the dashboard nor the command line; a server beside it (stepwell serve) has both.
package embedded

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inproc"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/server"
)

// URL is the server's address for clients that use [Server.Client]. It is no address of a network.
const URL = "http://embedded.stepwell"

// lastAnswers is how long calls that the end cuts short have for their answers.
const lastAnswers = 5 * time.Second

// Config configures a server. Only the database is needed.
type Config struct {
	// DatabaseURL is that of Postgres. Its parameter pool_max_conns limits the connections, which are 20 otherwise.
	DatabaseURL string
	// Pool replaces DatabaseURL: the server uses the pool's database, and its configuration, such as BeforeConnect, the
	// TLS settings and MaxConns. It opens connections of its own, because they have other settings than the caller's, such
	// as the schema.
	Pool *pgxpool.Pool
	// Schema is the schema of the tables, stepwell by default. It is created if it does not exist.
	Schema string
	// SkipMigrations leaves the schema as it is: [Migrate] has migrated it.
	SkipMigrations bool
	// Listen is the address at which the API is also served, such as 127.0.0.1:8788. By default it is not.
	Listen string
	// APIKey is an admin key for requests that come by that address, besides those in the database. It has at least 16
	// characters.
	APIKey string
	// PublicURL is the server's address on the internet; webhooks need it.
	PublicURL string
	// Deliveries limits the concurrent calls of functions; 5,000 by default.
	Deliveries int
	// Retention is how long ended runs are kept; for ever by default.
	Retention time.Duration
	// Grace is how long calls may take to finish at the end; 15 s by default.
	Grace time.Duration
	// Logger gets the server's log. By default nothing is logged.
	Logger *slog.Logger
}

// App is an app of the Go SDK: *stepwell.App.
type App interface {
	// Name returns the app's name.
	Name() string
	// Registration returns the ID of the app's deployment, and what the API registers it with.
	Registration(url string) (id string, registration json.RawMessage, err error)
	// Embed returns the handler of the calls to the app, which reaches the server with the client.
	Embed(server *http.Client) (http.Handler, error)
	// Shutdown refuses new calls and waits for those under way. When ctx ends, it ends them.
	Shutdown(ctx context.Context) error
}

// Migrate creates or migrates the schema. It needs the rights for that, which the database user of [Start] then does
// not.
func Migrate(ctx context.Context, c Config) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return migrations.Migrator{Logger: o.Logger}.Up(ctx, o.DatabaseURL, o.Schema, o.Install)
}

// Server is a server in this process. Its methods are safe for concurrent use.
type Server struct {
	server *server.Server
	client *http.Client
	app    App
	grace  time.Duration

	end     context.CancelFunc
	ended   chan struct{}
	failure error // of its end
}

// Start starts a server with the app, and registers the app. It waits for the database if that is away. The server runs
// until ctx ends or [Server.Close]; then the app is shut down, too.
func Start(ctx context.Context, c Config, app App) (*Server, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	s := &Server{app: app, grace: o.Grace, ended: make(chan struct{})}
	o.Grace += lastAnswers
	s.server = &server.Server{Options: o}
	s.client = &http.Client{Transport: transport{o.APIKey, s, inproc.Transport{Handler: http.HandlerFunc(s.serve)}}}
	address := queue.EmbeddedScheme + app.Name()
	deployment, registration, err := app.Registration(address)
	if err != nil {
		return nil, err
	}
	calls, err := app.Embed(s.client)
	if err != nil {
		return nil, err
	}
	s.server.Hosted = &queue.Hosted{Project: entities.DefaultProject, Deployment: deployment, URL: address, Calls: calls}
	if err := s.server.Start(ctx); err != nil {
		return nil, err
	}
	if err := s.register(ctx, deployment, registration); err != nil {
		s.server.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	ctx, s.end = context.WithCancel(ctx)
	go s.run(ctx)
	return s, nil
}

// Client returns an HTTP client that reaches the server's API at [URL], with the rights of an admin.
func (s *Server) Client() *http.Client { return s.client }

// Addr returns the address at which the server listens; empty if it does not.
func (s *Server) Addr() string { return s.server.Addr() }

// Close stops the server, if it runs, and waits until nothing of it runs any more. It returns why the server has ended
// by itself, such as because its listener failed.
func (s *Server) Close() error {
	s.end()
	<-s.ended
	return s.failure
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.ended }

// run ends the server when the context ends. Calls under way may finish; when the grace period is over, their contexts
// end, and they have a moment more to answer.
func (s *Server) run(ctx context.Context) {
	defer close(s.ended)
	var stopping sync.WaitGroup
	watched, seen := context.WithCancel(ctx)
	defer seen()
	stopping.Go(func() {
		<-watched.Done()
		patience, enough := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
		defer enough()
		_ = s.app.Shutdown(patience) // what was cut short is called again
	})
	s.failure = s.server.Serve(ctx)
	seen()
	stopping.Wait()
}

// serve is the server's API. It is called only when the server has started.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) { s.server.API().ServeHTTP(w, r) }

// register registers the app's deployment.
func (s *Server) register(ctx context.Context, deployment string, registration []byte) error {
	to := URL + "/v1/deployments/" + url.PathEscape(deployment)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(registration))
	if err != nil {
		return fmt.Errorf("register %s: %w", deployment, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("register %s: %w", deployment, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("register %s: %s %s", deployment, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

// transport authenticates the requests of this process that have no credential of their own, as those during a call do.
type transport struct {
	key    string
	server *Server
	next   http.RoundTripper
}

// Exchange carries out commands of a call to the app, as the API does for a request, and returns its answer. If it
// fails, the API says why: the same request may follow. The app looks for this method.
func (t transport) Exchange(ctx context.Context, run, call string, after int64, commands []byte) ([]byte, error) {
	of := token.Call{Project: entities.DefaultProject, RunID: entities.RunID(run), Invocation: call}
	return t.server.server.Exchange(ctx, of, after, commands) //nolint:wrapcheck // the API wraps it
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.key)
	}
	return t.next.RoundTrip(r)
}

// minKeyLength is the least length of an API key.
const minKeyLength = 16

// options returns the server's options.
func (c Config) options() (server.Options, error) {
	o := server.Options{Config: server.Defaults(), Role: server.RoleAll, Logger: c.Logger, Build: build()}
	switch {
	case (c.DatabaseURL == "") == (c.Pool == nil):
		return o, errors.New("embedded: set DatabaseURL or Pool, one of them")
	case c.APIKey != "" && len(c.APIKey) < minKeyLength:
		return o, fmt.Errorf("embedded: APIKey has fewer than %d characters, so it can be guessed", minKeyLength)
	case c.Deliveries < 0 || c.Deliveries > 10_000:
		return o, fmt.Errorf("embedded: Deliveries is %d; want 1 to 10000, or 0 for the default", c.Deliveries)
	case c.Grace < 0 || c.Retention < 0:
		return o, errors.New("embedded: Grace and Retention must not be negative")
	}
	o.DatabaseURL, o.Install = c.DatabaseURL, func(*pgxpool.Config) {}
	if c.Pool != nil {
		o.DatabaseURL, o.Install = c.Pool.Config().ConnString(), like(c.Pool)
	}
	if c.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Schema = cmp.Or(c.Schema, o.Schema)
	o.Listen, o.PublicURL, o.Retention, o.Migrated = c.Listen, c.PublicURL, c.Retention, c.SkipMigrations
	o.APIKey = cmp.Or(c.APIKey, rand.Text()) // nobody else knows it
	o.Deliveries, o.Grace = cmp.Or(c.Deliveries, o.Deliveries), cmp.Or(c.Grace, o.Grace)
	return o, nil
}

// like makes connections to the database of the pool as the pool does.
func like(pool *pgxpool.Pool) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		theirs, ours := pool.Config(), c.ConnConfig
		c.MaxConns, c.BeforeConnect = theirs.MaxConns, theirs.BeforeConnect
		ours.Host, ours.Port, ours.Database = theirs.ConnConfig.Host, theirs.ConnConfig.Port, theirs.ConnConfig.Database
		ours.User, ours.Password = theirs.ConnConfig.User, theirs.ConnConfig.Password
		ours.TLSConfig, ours.Fallbacks = theirs.ConnConfig.TLSConfig, theirs.ConnConfig.Fallbacks
		ours.DialFunc, ours.LookupFunc = theirs.ConnConfig.DialFunc, theirs.ConnConfig.LookupFunc
	}
}

// build says which version of the server's module the program has.
func build() telemetry.Build {
	b := telemetry.Build{Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/stepwell-dev/stepwell" {
			b.Version = m.Version
		}
	}
	return b
}
