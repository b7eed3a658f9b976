package testdb

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Limits that only a broken set-up reaches.
const (
	setUpLimit   = 5 * time.Minute // may download Postgres
	cleanUpLimit = time.Minute
)

// shared is the server of this process, made by the first test that needs it.
var shared struct {
	sync.Mutex
	asked  bool
	server *server
	err    error
}

// New returns the address of a new database with the current schema. It is dropped when the test ends, and
// whatever is still connected to it is disconnected.
func New(t testing.TB) string {
	t.Helper()
	return create(t, (*server).migrated)
}

// Empty returns the address of a new database with nothing in it, for tests of the migrations themselves.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, (*server).empty)
}

// Main runs the tests of a package and then takes away all that they shared. Call it from TestMain; it need
// not be the last call there.
func Main(m *testing.M) {
	m.Run()
	if err := takeDown(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		os.Exit(1)
	}
}

// create makes a database and registers its end with the test.
func create(t testing.TB, kind func(*server, context.Context) (database, error)) string {
	t.Helper()
	s, err := sharedServer()
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), setUpLimit)
	defer cancel()
	db, err := kind(s, ctx)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
		defer cancel()
		if err := s.drop(ctx, db.name); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return db.dsn
}

// sharedServer returns the server, or why there is none, to every test alike.
func sharedServer() (*server, error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.asked {
		shared.asked = true
		ctx, cancel := context.WithTimeout(context.Background(), setUpLimit) // not the first test's alone
		defer cancel()
		shared.server, shared.err = openServer(ctx, os.Getenv("TEST_DATABASE_URL"))
	}
	return shared.server, shared.err
}

// takeDown ends the shared server, if there is one.
func takeDown() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	return shared.server.close(ctx)
}
