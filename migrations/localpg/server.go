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
)

// startGrace is how long a server may take to answer if the caller sets no deadline.
const startGrace = time.Minute

// Options configure a server. The zero value is a throwaway server on a free port.
type Options struct {
	// Dir is the server's folder. It is created if needed and may hold no other files. Empty means a temporary folder,
	// which is removed by Stop or when the owner dies.
	Dir string
	// Port is the port on 127.0.0.1. 0 means any free port.
	Port int
	// Relaxed makes a server in a lasting folder as fast as one in a temporary folder always is: a commit survives a
	// crash of the server, but not of the machine.
	Relaxed bool
	// Settings are settings of Postgres by name. They override those of this package.
	Settings map[string]string
	// InstalledOnly limits the search for Postgres to programs on this machine: no download.
	InstalledOnly bool
	// Logger receives Postgres's output at debug level. Nil discards it.
	Logger *slog.Logger
}

// ForTests are the options of a throwaway server on which many tests create databases.
func ForTests() Options {
	return Options{
		InstalledOnly: true,
		Settings:      map[string]string{"max_connections": "1000", "synchronous_commit": "off"},
	}
}

// relaxed reports whether the data need not survive a crash of the machine.
func (o Options) relaxed() bool { return o.Dir == "" || o.Relaxed }

// logger returns Logger or one that discards its output.
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

	stopOnce sync.Once
	stopErr  error // the result of Stop
}

// Start starts a server and returns when it answers. The server runs until Stop is called or this process ends. The
// context limits only the start. If it has no deadline, the server has a minute to answer, once Postgres is found,
// downloaded and initialized.
func Start(ctx context.Context, o Options) (*Server, error) {
	fd := systemFinder()
	fd.installedOnly = o.InstalledOnly
	return start(ctx, o, fd)
}

// start is Start with a given finder.
func start(ctx context.Context, o Options, fd finder) (*Server, error) {
	f, err := openFolder(ctx, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s := &Server{folder: f}
	if err := s.setUp(ctx, o, fd); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), f.close())
	}
	return s, nil
}

// setUp finds Postgres, initializes the data and runs the server.
func (s *Server) setUp(ctx context.Context, o Options, fd finder) error {
	p, err := fd.find(ctx, s.folder)
	if err != nil {
		return err
	}
	if err := s.folder.loadPassword(); err != nil {
		return err
	}
	if err := p.prepare(ctx, s.folder, o); err != nil {
		return err
	}
	return s.serve(ctx, o, p)
}

// serve runs the server on the given port. For port 0 it tries another free port if another process took the first.
func (s *Server) serve(ctx context.Context, o Options, from programs) error {
	if o.Port != 0 {
		if !portFree(o.Port) {
			return fmt.Errorf("port %d of 127.0.0.1 is in use: choose another, or 0 for any free one", o.Port)
		}
		return s.serveOn(ctx, o.Port, o, from)
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		if err = s.serveOn(ctx, port, o, from); attempt == 5 || !portTaken(err) {
			return err
		}
	}
}

// serveOn runs the server on the port and waits until it answers.
func (s *Server) serveOn(ctx context.Context, port int, o Options, from programs) error {
	p, err := launch(from.command(s.folder, port, settings(o)), s.folder, newTail(o.logger()))
	if err != nil {
		return fmt.Errorf("launch postgres: %w", err)
	}
	s.process, s.port = p, port
	if err := s.waitReady(ctx); err != nil {
		stopped := p.stop(context.WithoutCancel(ctx))
		p.guardian.dismiss()
		return errors.Join(err, stopped)
	}
	s.folder.releaseServerLock()
	return nil
}

// waitReady returns when the server answers. It returns an error if the server exits or the context ends.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := withDefaultTimeout(ctx, startGrace)
	defer cancel()
	go func() { // ends a ping that hangs because another process has our port
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

// ping connects to the server once.
func (s *Server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// settings returns the server's settings, ours and the caller's.
func settings(o Options) map[string]string {
	all := map[string]string{
		"timezone": "UTC", "log_timezone": "UTC", "log_checkpoints": "off",
		"log_error_verbosity": "terse", // details of errors contain values, which may be payloads
	}
	if o.relaxed() {
		all["fsync"], all["full_page_writes"] = "off", "off"
	}
	maps.Copy(all, o.Settings)
	return all
}

// DSN returns the address of the server's database postgres, with the password.
func (s *Server) DSN() string {
	address := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.folder.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return address.String()
}

// Done returns a channel that is closed when the server has ended for any reason.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Stop stops the server and releases its folder. It requests a fast shutdown and waits until the context ends (15 s if
// it has no deadline), then requests an immediate shutdown, after which Postgres recovers as after a crash. It returns
// an *ExitError if the server had exited on its own. Further calls return the result of the first.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

// stop does the work of Stop. It dismisses the guardian last: if this process dies before, the guardian does the rest.
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
