package localpg

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ownerEnv makes the test binary the owner of a server in the folder it names, or of a temporary server.
const (
	ownerEnv       = "STEPWELL_LOCALPG_OWNER"
	ownerTemporary = "temporary"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		runOwner(dir)
	}
	m.Run()
}

// owned describes an owner's server to the parent process.
type owned struct {
	Dir      string
	Port     int
	DSN      string
	Guardian int // process ID
}

// runOwner starts a server, describes it on standard output, and waits to be killed.
func runOwner(dir string) {
	o := Options{Dir: dir, Relaxed: true}
	if dir == ownerTemporary {
		o.Dir = ""
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		panic(err)
	}
	description := owned{s.folder.dir, s.port, s.DSN(), s.process.guardian.cmd.Process.Pid}
	if err := json.NewEncoder(os.Stdout).Encode(description); err != nil {
		panic(err)
	}
	select {}
}

// newDir returns the path of a new folder that the server's user can reach. It does not exist yet.
func newDir(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	for _, dir := range []string{parent, filepath.Dir(parent)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(parent, "db")
}

// mustStart starts a server and stops it when the test ends.
func mustStart(t *testing.T, o Options) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	o.Relaxed = true
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

// mustStop stops a server, which must not have failed.
func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

// mustExec executes a statement.
func mustExec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// query returns the single value that a statement selects.
func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// eventually waits for a condition and fails the test after a minute.
func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, func(context.Context) (bool, error) { return holds(), nil }); err != nil {
		t.Fatalf("waited a minute until %s", condition)
	}
}

// wantError returns the error as an E, or fails the test.
func wantError[E error](t *testing.T, err error) E {
	t.Helper()
	var want E
	if !errors.As(err, &want) {
		t.Fatalf("got error %v (%T), want %T", err, err, want)
	}
	return want
}
