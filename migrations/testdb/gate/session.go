// Package gate lets a test hold sessions of Postgres before every one of their statements, and choose which
// goes on next: to see all interleavings of two transactions, or to kill one after any of its statements.
//
// Transactions here send most of their statements as pipelined batches, whose boundaries no client sees. The
// gate sits below the client, on the bytes of the connection: it sends the messages of one statement of a
// batch, has Postgres flush the answer, and holds the next ones back. To Postgres this is a client with a
// slow line. Statements are so the finest grain that there is: Postgres takes a snapshot for each, waits for
// locks within one, and releases them at the commit, which is held back like a statement, also when it is
// implicit. What happens between the locks of one single statement is Postgres's own affair.
//
// Only tests import it. It imports migrations.
package gate

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
)

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// Session is one session of Postgres that a test can hold.
type Session struct {
	// Pool has the session as its only connection.
	Pool *pgxpool.Pool

	// observer is where questions about the session are asked.
	observer *pgxpool.Pool
	held     chan string
	let      chan verdict
	over     <-chan struct{} // closed when the test ends, to let go whoever is still held
	// matters chooses the statements to stop at; nil chooses all.
	matters func(sql string) bool

	mu      sync.Mutex
	holding bool
	losing  bool
}

// verdict is what becomes of a statement that was held.
type verdict int

const (
	goOn verdict = iota
	// cutBefore cuts the client off before the statement is sent.
	cutBefore
	// loseAnswer cuts it off when the statement has been executed.
	loseAnswer
)

// Open makes a session with the database. It is closed when the test ends. Statements that do not matter are
// not stopped at; nil: all do.
func Open(t testing.TB, dsn string, observer *pgxpool.Pool, matters func(sql string) bool) *Session {
	t.Helper()
	plain, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	config := plain.Config()
	plain.Close()
	s := &Session{
		observer: observer, matters: matters,
		held: make(chan string), let: make(chan verdict), over: t.Context().Done(),
	}
	config.MinConns, config.MaxConns = 0, 1
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, nc net.Conn) (net.Conn, error) {
		return newConn(nc, s), nil
	}
	if s.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Pool.Close)
	return s
}

// pid is the process ID of the session's backend.
func (s *Session) pid(t testing.TB) uint32 {
	t.Helper()
	c, err := s.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	return c.Conn().PgConn().PID()
}

func (s *Session) hold(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding, s.losing = on, false
}

func (s *Session) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

func (s *Session) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losing
}

// pass is where a connection waits before a statement.
func (s *Session) pass(sql string) verdict {
	sql = strings.Join(strings.Fields(sql), " ")
	if s.matters != nil && !s.matters(sql) {
		return goOn
	}
	v := cutBefore
	select {
	case s.held <- sql:
	case <-s.over:
		return v
	}
	select {
	case v = <-s.let:
	case <-s.over:
		return v
	}
	if v == loseAnswer {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.losing = true
	}
	return v
}

// start calls fn, which uses the session; the channel is closed when it has returned.
func (s *Session) start(fn func()) <-chan struct{} {
	s.hold(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.hold(false)
		fn()
	}()
	return done
}
