package testdb

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Time limits that only a broken set-up reaches.
const (
	setUpLimit   = 5 * time.Minute // may pull an image
	cleanUpLimit = time.Minute
)

// shared is the server of this process. The first test that needs it opens it.
var shared struct {
	sync.Mutex
	opened bool
	server *server
	err    error
}

// New returns the address of a new database with the current schema. When the test ends, the database is dropped and
// its clients are disconnected.
func New(t testing.TB) string {
	t.Helper()
	return create(t, (*server).migrated)
}

// Empty returns the address of a new empty database, for tests of the migrations themselves.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, (*server).empty)
}

// Main runs the tests of a package and then removes what they shared. Call it from TestMain; it need not be the last
// call there.
func Main(m *testing.M) {
	m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		os.Exit(1)
	}
}

// create creates a database, and drops it when the test ends.
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

// sharedServer returns the shared server, or the error of the only attempt to open it.
func sharedServer() (*server, error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.opened {
		shared.opened = true
		ctx, cancel := context.WithTimeout(context.Background(), setUpLimit) // shared: must outlive the first test
		defer cancel()
		shared.server, shared.err = openServer(ctx, os.Getenv("TEST_DATABASE_URL"))
	}
	return shared.server, shared.err
}

// closeShared closes the shared server, if there is one.
func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	return shared.server.close(ctx)
}
