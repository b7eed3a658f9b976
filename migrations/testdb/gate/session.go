// Package gate stops Postgres sessions before each of their statements and lets a test choose which session continues.
// Tests use it to run two transactions in every interleaving, or to kill a session at any of its statements.
//
// Our transactions send most statements in pipelined batches, so a client does not see where one statement ends. The
// gate therefore works below the client, on the bytes of the connection: it sends the messages of one statement, asks
// Postgres to flush the answer, and holds back the messages of the next statement. Postgres sees a client with a slow
// connection.
//
// A statement is the finest step that matters: Postgres takes a snapshot for each statement, waits for locks within
// one, and releases them at the commit. The gate stops before commits, too, including implicit ones. It does not
// control what Postgres does within a statement.
//
// It may import migrations. Only tests may import it.
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

// timeout limits each wait, generously enough for a busy machine.
const timeout = time.Minute

// Session is a Postgres session that stops before its statements while [Session.Run] or [Schedule.Run] controls it.
type Session struct {
	// Pool has the session as its only connection.
	Pool *pgxpool.Pool

	observer   *pgxpool.Pool         // queries pg_stat_activity about the session
	matters    func(sql string) bool // selects the statements to stop before; nil selects all
	statements chan string           // receives each statement that the session stops before
	resume     chan action           // says how the stopped session continues
	testDone   <-chan struct{}       // closed when the test ends, to release a session that is stopped

	mu         sync.Mutex
	controlled bool
	answerLost bool // the answer of the current statement is to be dropped
	away       bool // no statement is sent any more
}

// action is how a stopped session continues.
type action int

const (
	proceed action = iota
	// disconnect closes the connection before the statement is sent.
	disconnect
	// loseAnswer closes the connection after the statement has been executed.
	loseAnswer
	// stayAway closes the connection before the statement is sent, and so all later ones.
	stayAway
)

// Open opens a session with the database and closes it when the test ends. The session stops only before the statements
// for which matters returns true; nil means all. It skips the test under go test -short.
func Open(t testing.TB, dsn string, observer *pgxpool.Pool, matters func(sql string) bool) *Session {
	t.Helper()
	if testing.Short() {
		t.Skip("runs many schedules, or crashes at many statements")
	}
	plain, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	config := plain.Config()
	plain.Close()
	s := &Session{
		observer: observer, matters: matters,
		statements: make(chan string), resume: make(chan action), testDone: t.Context().Done(),
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

// pid returns the process ID of the session's backend.
func (s *Session) pid(t testing.TB) uint32 {
	t.Helper()
	c, err := s.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	return c.Conn().PgConn().PID()
}

func (s *Session) setControlled(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controlled, s.answerLost, s.away = on, false, false
}

func (s *Session) isControlled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.controlled
}

// takeLoss reports whether to drop the answer of the current statement. It does so once: the answers on the next
// connection arrive.
func (s *Session) takeLoss() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.answerLost
	s.answerLost = false
	return lost
}

// stopBefore blocks the connection before a statement until the test says how it continues.
func (s *Session) stopBefore(sql string) action {
	sql = strings.Join(strings.Fields(sql), " ")
	if s.isAway() {
		return disconnect
	}
	if s.matters != nil && !s.matters(sql) {
		return proceed
	}
	next := disconnect
	select {
	case s.statements <- sql:
	case <-s.testDone:
		return next
	}
	select {
	case next = <-s.resume:
	case <-s.testDone:
		return next
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch next {
	case loseAnswer:
		s.answerLost = true
	case stayAway:
		s.away = true
		return disconnect
	case proceed, disconnect:
	}
	return next
}

func (s *Session) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// start takes control of the session and calls fn, which uses it. The channel is closed when fn has returned.
func (s *Session) start(fn func()) <-chan struct{} {
	s.setControlled(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.setControlled(false)
		fn()
	}()
	return done
}
