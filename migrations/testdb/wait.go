package testdb

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Timeout is how long a test waits for something that must happen. It is long because machines can be busy.
const Timeout = 3 * time.Minute

// Eventually waits until ok returns true, for [Timeout] at most.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(Timeout)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s, but not: %s", Timeout, what)
		}
	}
}

// Receive waits for an item on the channel, for [Timeout] at most.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case item := <-c:
		return item
	case <-time.After(Timeout):
		t.Fatalf("waited %s without getting %s", Timeout, what)
		panic("unreachable")
	}
}

// WantError fails the test unless err is want.
func WantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// Few limits a pool, so that parallel tests do not use all connections of the server.
func Few(c *pgxpool.Config) { c.MaxConns = 10 }

// Log is a log that a test can read while it is being written.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Count returns how often the log has the text.
func (l *Log) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(text))
}

// String returns the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Contains reports whether the log has the text.
func (l *Log) Contains(text string) bool { return l.Count(text) > 0 }

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
