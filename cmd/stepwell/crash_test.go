package main

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// asCommand is the environment variable that makes the test binary run as the command.
const asCommand = "STEPWELL_TEST_AS_COMMAND"

// child is a server in its own process.
type child struct {
	*os.Process
	base string // URL of its API
}

// serveInChild starts a server in a child process and waits until it listens. The test kills it at its end.
func serveInChild(t *testing.T, dsn string, env ...string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "serve")
	cmd.Env = append(os.Environ(), append([]string{
		asCommand + "=1", "DATABASE_URL=" + dsn, "STEPWELL_LISTEN=127.0.0.1:0", "STEPWELL_OPEN=true",
		"STEPWELL_ALLOW_ADDRESSES=loopback",
	}, env...)...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, exited := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(exited)
		listening := regexp.MustCompile(`msg=listening addr=(\S+)`)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			t.Logf("process %d: %s", cmd.Process.Pid, lines.Text())
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				addr <- found[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if the test has killed it
		<-exited
		_ = cmd.Wait()
	})
	select {
	case a := <-addr:
		return child{cmd.Process, "http://" + a}
	case <-exited:
	case <-time.After(waitLimit):
	}
	t.Fatal("the server does not listen")
	return child{}
}

// signal sends a signal to the process.
func (c child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// freeze stops the process and waits until it has stopped.
func (c child) freeze(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("freeze: got status %v, %v", status, err)
	}
}

// hangingApp is an app whose functions do not answer until the test ends.
type hangingApp struct {
	url   string
	calls chan http.Header
}

func newHangingApp(t *testing.T) hangingApp {
	t.Helper()
	release := make(chan struct{})
	calls := make(chan http.Header, 100)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- r.Header
		<-release
	}))
	t.Cleanup(app.Close)
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	return hangingApp{app.URL, calls}
}

// next waits for the next call.
func (h hangingApp) next(t *testing.T) http.Header {
	t.Helper()
	select {
	case c := <-h.calls:
		return c
	case <-time.After(waitLimit):
		t.Fatalf("no delivery within %s", waitLimit)
		return nil
	}
}

const stepTopic = "/sdk/queues-proxy/api/v3/topic/__wkf_step_a"

func send(t *testing.T, base string) {
	t.Helper()
	got := servertest.Request(t, http.MethodPost, base+stepTopic, "x", "Vqs-Deployment-Id", "shop")
	if got.StatusCode != http.StatusCreated {
		t.Fatalf("send: got %s", got.Status)
	}
}

// lease extends or ends the lease of a call, and returns the status.
func lease(t *testing.T, base, method string, call http.Header) int {
	t.Helper()
	url := base + stepTopic + "/consumer/default/lease/" + call.Get("Ce-Vqsreceipthandle")
	return servertest.Request(t, method, url, `{"visibilityTimeoutSeconds":300}`).StatusCode
}

// mostTakeover is how long a takeover may take on a busy machine. It should be 5 s; without one, it is the lease's 5 min.
const mostTakeover = time.Minute

// TestDeliveriesOfKilledServerAreTakenOver: soon, except those whose leases the functions have extended.
func TestDeliveriesOfKilledServerAreTakenOver(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	app := newHangingApp(t)
	victim := serveInChild(t, dsn, "STEPWELL_DEPLOYMENTS=shop="+app.url)
	send(t, victim.base)
	kept := app.next(t)
	if got := lease(t, victim.base, http.MethodPatch, kept); got != http.StatusNoContent {
		t.Fatalf("extend: got %d", got)
	}
	send(t, victim.base)
	lost := app.next(t)
	survivor := serveInChild(t, dsn)
	waitForHeartbeats(t, dsn, 2)

	victim.signal(t, syscall.SIGKILL)
	died := time.Now()
	again := app.next(t)
	took := time.Since(died)
	t.Logf("delivered again after %s", took)
	if took > mostTakeover {
		t.Errorf("delivered again %s after the server was killed, want at most %s", took, mostTakeover)
	}
	id, handle := "Ce-Vqsmessageid", "Ce-Vqsreceipthandle"
	if again.Get(id) != lost.Get(id) || again.Get(handle) == lost.Get(handle) {
		t.Errorf("got %v, want message %s with a new handle", again, lost.Get(id))
	}
	for _, method := range []string{http.MethodPatch, http.MethodDelete} {
		if got := lease(t, survivor.base, method, lost); got != http.StatusNotFound {
			t.Errorf("%s with the handle of the lost delivery: got %d, want 404", method, got)
		}
		for name, call := range map[string]http.Header{"kept": kept, "redelivered": again} {
			if got := lease(t, survivor.base, method, call); got != http.StatusNoContent {
				t.Errorf("%s of the %s message: got %d, want 204", method, name, got)
			}
		}
	}
	if len(app.calls) > 0 {
		t.Errorf("unexpected call: %v", <-app.calls)
	}
}

// waitForHeartbeats waits until a number of processes have sent heartbeats for long enough to take over from others.
func waitForHeartbeats(t *testing.T, dsn string, processes int) {
	t.Helper()
	waitForQuery(t, dsn, `SELECT count(*) = $1 FROM stepwell.processes WHERE steady_since < now() - interval '3 s'`, processes)
}

// waitForQuery waits until a query returns true.
func waitForQuery(t *testing.T, dsn, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(waitLimit)
	for holds := false; ; {
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&holds); err != nil {
			t.Fatal(err)
		}
		if holds {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", waitLimit, sql)
		}
	}
}

// TestFrozenServerCannotUseLostLeases: a server that is stopped during deliveries and requests loses its leases, and
// cannot extend or end them once it continues.
func TestFrozenServerCannotUseLostLeases(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	app := newHangingApp(t)
	frozen := serveInChild(t, dsn, "STEPWELL_DEPLOYMENTS=shop="+app.url)
	send(t, frozen.base)
	lost := app.next(t)
	survivor := serveInChild(t, dsn)
	frozen.freeze(t)
	// The server will read these requests once it continues: an extension and an acknowledgement.
	late := make(chan int, 2)
	for _, method := range []string{http.MethodPatch, http.MethodDelete} {
		go func() { late <- lease(t, frozen.base, method, lost) }()
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	// Age the heartbeat past the limit instead of waiting for it.
	waitForQuery(t, dsn, `SELECT EXISTS (SELECT FROM stepwell.processes WHERE beat_at < now() - interval '3 s')`)
	if _, err := conn.Exec(t.Context(), `
		UPDATE stepwell.processes SET beat_at = now() - interval '1 minute' WHERE beat_at < now() - interval '3 s'
	`); err != nil {
		t.Fatal(err)
	}
	again := app.next(t)
	if again.Get("Ce-Vqsmessageid") != lost.Get("Ce-Vqsmessageid") {
		t.Fatalf("got %v, want the lost message", again)
	}
	frozen.signal(t, syscall.SIGCONT)
	for range 2 {
		if got := <-late; got != http.StatusNotFound {
			t.Errorf("request sent while frozen: got %d, want 404", got)
		}
	}
	// It sends heartbeats again, and has not taken back the lease.
	waitForQuery(t, dsn, `SELECT count(*) = 2 FROM stepwell.processes WHERE beat_at > now() - interval '2 s'`)
	var handle, holder string
	if err := conn.QueryRow(t.Context(), `SELECT lease, holder FROM stepwell.messages`).Scan(&handle, &holder); err != nil {
		t.Fatal(err)
	}
	if handle != again.Get("Ce-Vqsreceipthandle") || holder == "" {
		t.Errorf("the lease is %s of %q, want %s", handle, holder, again.Get("Ce-Vqsreceipthandle"))
	}
	if got := lease(t, survivor.base, http.MethodDelete, again); got != http.StatusNoContent {
		t.Errorf("acknowledge: got %d", got)
	}
	if len(app.calls) > 0 {
		t.Errorf("unexpected call: %v", <-app.calls)
	}
}

// TestSessionTimeouts: they are set unless the database URL sets them.
func TestSessionTimeouts(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	mustStart(t, s)
	for name, want := range server.SessionTimeouts {
		var got string
		if err := s.Pool().QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", name, got, err, want)
		}
	}
	idle, err := time.ParseDuration(server.SessionTimeouts["idle_in_transaction_session_timeout"])
	if err != nil || idle > cluster.FrozenLimit {
		t.Errorf("the locks of a frozen server may outlast its leases: %s, %v", idle, err)
	}
	custom := newServer(t, testdb.New(t), server.RoleAPI)
	sign := "?"
	if strings.Contains(custom.config.DatabaseURL, "?") {
		sign = "&"
	}
	custom.config.DatabaseURL += sign + "statement_timeout=70s"
	mustStart(t, custom)
	var got string
	err = custom.Pool().QueryRow(t.Context(), `SELECT current_setting('statement_timeout')`).Scan(&got)
	if err != nil || got != "70s" {
		t.Errorf("statement_timeout of the database URL: got %s (%v), want 70s", got, err)
	}
}
