package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestLastingServerKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := newDir(t)

	first := mustStart(t, Options{Dir: dir})
	mustExec(t, first.DSN(), "CREATE TABLE kept AS SELECT 42 AS n")
	mustStop(t, first)
	if !portFree(first.port) {
		t.Error("the port is still in use after Stop")
	}

	second := mustStart(t, Options{Dir: dir})
	if got := query[int](t, second.DSN(), "SELECT n FROM kept"); got != 42 {
		t.Errorf("after restart got %d, want 42", got)
	}
	if first.folder.password != second.folder.password {
		t.Error("the password changed with the restart")
	}
}

func TestDurableServerSyncs(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{Dir: newDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(context.Background()) }()
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query[string](t, s.DSN(), "SHOW "+setting); got != "on" {
			t.Errorf("%s is %s, want on", setting, got)
		}
	}
}

func TestTemporaryServerLeavesNothing(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{Settings: map[string]string{"max_connections": "17"}})
	if got := query[string](t, s.DSN(), "SHOW max_connections"); got != "17" {
		t.Errorf("max_connections is %s, want 17", got)
	}
	if got := query[string](t, s.DSN(), "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	mustStop(t, s)
	mustStop(t, s) // stopping twice is no error
	if _, err := os.Stat(s.folder.dir); !os.IsNotExist(err) {
		t.Errorf("folder %s still exists", s.folder.dir)
	}
	select {
	case <-s.Done():
	default:
		t.Error("Done is not closed after Stop")
	}
}

func TestServerRequiresPassword(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{})
	address, err := url.Parse(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(superuser, "guess")
	if conn, err := pgx.Connect(t.Context(), address.String()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("connected with a wrong password")
	}
	if got := query[string](t, s.DSN(), "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listens on %s, want 127.0.0.1", got)
	}
	rules := "SELECT coalesce(string_agg(DISTINCT auth_method, ','), '') FROM pg_hba_file_rules"
	if got := query[string](t, s.DSN(), rules); got != "scram-sha-256" {
		t.Errorf("authentication is %s, want only scram-sha-256", got)
	}
	stored := "SELECT rolpassword LIKE 'SCRAM-SHA-256$1:%' FROM pg_authid WHERE rolname = current_user"
	if !query[bool](t, s.DSN(), stored) {
		t.Error("the password is hashed more than once, which each connection repeats")
	}
	info, err := os.Stat(filepath.Join(s.folder.dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the password file has mode %v, want 0600", info.Mode())
	}
}

func TestOneServerPerFolder(t *testing.T) {
	t.Parallel()
	const racers = 6
	dir := newDir(t)
	servers, errs := make([]*Server, racers), make([]error, racers)
	var racing sync.WaitGroup
	for i := range racers {
		racing.Go(func() {
			servers[i], errs[i] = Start(context.Background(), Options{Dir: dir, Relaxed: true})
		})
	}
	racing.Wait()
	var winners int
	for i := range racers {
		if errs[i] == nil {
			winners++
			defer func() { _ = servers[i].Stop(context.Background()) }()
			continue
		}
		if want := "data folder " + dir + " is in use"; !strings.Contains(errs[i].Error(), want) {
			t.Errorf("got error %v, want %s", errs[i], want)
		}
	}
	if winners != 1 {
		t.Errorf("%d servers run on one folder", winners)
	}
}

func TestFixedPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	dir := newDir(t)
	_, err = Start(t.Context(), Options{Dir: dir, Port: port, Relaxed: true})
	if want := fmt.Sprintf("port %d of 127.0.0.1 is in use", port); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, Options{Dir: dir, Port: port})
	if s.port != port {
		t.Errorf("listens on %d, want %d", s.port, port)
	}
}

func TestPortTakenIsRecognised(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := mustStart(t, Options{Dir: newDir(t)})
	mustStop(t, s)

	f, err := openFolder(t.Context(), s.folder.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.close() }()
	e, err := systemFinder().find(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	again := &Server{folder: f}
	err = again.serveOn(t.Context(), taken.Addr().(*net.TCPAddr).Port, Options{}, e)
	if !portTaken(err) {
		t.Errorf("got error %v, want one that portTaken recognises", err)
	}
}

func TestInvalidSettingErrorShowsLog(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Settings: map[string]string{"max_connections": "many"}})
	if e := wantError[*ExitError](t, err); !strings.Contains(e.Log, `"max_connections"`) {
		t.Errorf("the log does not name the setting: %s", e.Log)
	}
}

func TestCrashedServerRecovers(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := mustStart(t, Options{Dir: dir})
	mustExec(t, first.DSN(), "CREATE TABLE kept AS SELECT 42 AS n")
	if err := first.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	if e := wantError[*ExitError](t, first.Stop(t.Context())); !strings.Contains(e.Status, "killed") {
		t.Errorf("the server's status is %q, want killed", e.Status)
	}
	second := mustStart(t, Options{Dir: dir})
	if got := query[int](t, second.DSN(), "SELECT n FROM kept"); got != 42 {
		t.Errorf("after the crash got %d, want 42", got)
	}
}

func TestStopWithCancelledContext(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{Dir: newDir(t)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStartEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Dir: newDir(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
