package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// startGrace is how long a server may take to answer when the caller sets no deadline.
const startGrace = time.Minute

// Durability is what a server promises about committed transactions.
type Durability int

// The durabilities. A server in a temporary folder is always Relaxed.
const (
	Durable Durability = iota // a commit survives everything, as usual
	Relaxed                   // a commit survives a crash of the server, but not of the machine; much faster
)

// Options say what server to start. The zero value is a throwaway server on a free port.
type Options struct {
	// Dir is the folder of everything that belongs to the server; it is created if needed, and no other
	// files may be in it. Empty means a temporary folder, removed by Stop or by the owner's death.
	Dir string
	// Port is the port on 127.0.0.1, 0 for any free one.
	Port int
	// Durability is what commits in a lasting folder survive.
	Durability Durability
	// Settings are further settings of Postgres, by name; they win over those of this package.
	Settings map[string]string
	// InstalledOnly limits the search for Postgres to programs on this machine: no Docker, no download.
	InstalledOnly bool
	// Logger receives Postgres's output at debug level. Nil discards it.
	Logger *slog.Logger
}

// relaxed reports whether the data need not survive a crash of the machine.
func (o Options) relaxed() bool { return o.Dir == "" || o.Durability == Relaxed }

// logger is the logger to use.
func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// Server is a running private Postgres.
type Server struct {
	folder  *folder
	process *process
	port    int

	stopping sync.Once
	stopped  error // what Stop returned
}

// Start starts a server and returns when it answers. The server lives until Stop or until this process
// ends, whichever comes first; the context limits only the start. Without a deadline in it the server has a
// minute to answer, on top of what it takes to find, download and set up Postgres.
func Start(ctx context.Context, o Options) (*Server, error) {
	fd := systemFinder()
	fd.installedOnly = o.InstalledOnly
	return start(ctx, o, fd)
}

// start is Start with the places to look for Postgres.
func start(ctx context.Context, o Options, fd finder) (*Server, error) {
	f, err := openFolder(ctx, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s := &Server{folder: f}
	if err := s.bringUp(ctx, o, fd); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), f.close())
	}
	return s, nil
}

// bringUp finds Postgres, makes the data and runs the server, in a folder that is locked.
func (s *Server) bringUp(ctx context.Context, o Options, fd finder) error {
	e, err := fd.find(ctx, s.folder)
	if err != nil {
		return err
	}
	if err := s.folder.loadSecret(); err != nil {
		return err
	}
	if err := e.prepare(ctx, s.folder, o); err != nil {
		return err
	}
	return s.serve(ctx, o, e)
}

// serve runs the server on the wanted port, or on free ones until nobody else was faster to take it.
func (s *Server) serve(ctx context.Context, o Options, e engine) error {
	if o.Port != 0 {
		if !portFree(o.Port) {
			return &PortError{Port: o.Port}
		}
		return s.serveOn(ctx, o.Port, o, e)
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		if err = s.serveOn(ctx, port, o, e); attempt == 5 || !lostPort(err) {
			return err
		}
	}
}

// serveOn runs the server on the port and waits until it answers.
func (s *Server) serveOn(ctx context.Context, port int, o Options, e engine) error {
	p, err := launch(e.command(s.folder, port, settings(o)), s.folder, newTail(o.logger()))
	if err != nil {
		return fmt.Errorf("launch postgres: %w", err)
	}
	s.process, s.port = p, port
	if err := s.awaitReady(ctx); err != nil {
		stopped := p.stop(context.WithoutCancel(ctx))
		p.guardian.dismiss()
		return errors.Join(err, stopped)
	}
	s.folder.handOver()
	return nil
}

// awaitReady returns when the server answers, or says why it does not.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := orWithin(ctx, startGrace)
	defer cancel()
	go func() { // a stranger on our port may take the connection and never answer
		select {
		case <-s.process.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	var last error
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		last = s.ping(ctx)
		return last == nil, nil
	})
	select {
	case <-s.process.done:
		return s.process.exited()
	default:
	}
	if err != nil {
		return fmt.Errorf("wait for postgres to answer: %w: %w", err, last)
	}
	return nil
}

// ping connects once.
func (s *Server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// settings are the server's settings, ours and the caller's.
func settings(o Options) map[string]string {
	all := map[string]string{
		"timezone": "UTC", "log_timezone": "UTC", "log_checkpoints": "off",
		"log_error_verbosity": "terse", // the details of errors are values, which may be payloads
	}
	if o.relaxed() {
		all["fsync"], all["full_page_writes"] = "off", "off"
	}
	maps.Copy(all, o.Settings)
	return all
}

// DSN is the address of a database on the server, with the password. The databases are postgres and those
// that were created since.
func (s *Server) DSN(database string) string {
	address := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.folder.secret),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return address.String()
}

// CreateDatabase creates the database if there is none of that name.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	const duplicateDatabase = "42P04"
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == duplicateDatabase {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// Done is closed when the server has ended, asked to or not.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Stop shuts the server down and gives up its folder: fast and in good order until the context's deadline
// (15 s if it has none), then at once, as after a crash. A context that is over already asks for the latter.
// It returns an *ExitError if the server had ended by itself before. Further calls return what the first did.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Do(func() { s.stopped = s.stop(ctx) })
	return s.stopped
}

// stop does the work of Stop. The guardian goes last: should we die on the way, it does the rest.
func (s *Server) stop(ctx context.Context) error {
	var err error
	select {
	case <-s.process.done:
		err = s.process.exited()
	default:
		err = s.process.stop(ctx)
	}
	err = errors.Join(err, s.folder.close())
	s.process.guardian.dismiss()
	return err
}
