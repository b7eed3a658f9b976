package failover

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// node is a Postgres that can die, come back and follow another one. Its port and folder stay the same.
type node struct {
	t    *testing.T
	name string
	dir  string
	port int
	// settings are used by the next start.
	settings map[string]string

	server *localpg.Server // nil while the node is down
}

// newNode starts a primary.
func newNode(t *testing.T, settings map[string]string) *node {
	t.Helper()
	harness.SkipIfShort(t)
	n := &node{t: t, name: "a", dir: filepath.Join(harness.OpenDir(t), "a"), port: harness.FreePort(t), settings: settings}
	t.Cleanup(n.stop)
	n.start()
	return n
}

// newSynchronous starts a primary with a synchronous standby, and a server that delivers by them.
func newSynchronous(t *testing.T) (primary, standby *node, s *server) {
	t.Helper()
	primary = newNode(t, map[string]string{"synchronous_standby_names": "b"})
	standby = primary.newStandby()
	primary.awaitStandby("sync")
	s = startServer(t, databaseURL(t, "", primary, standby))
	primary.awaitWorker()
	return primary, standby, s
}

// newStandby copies a primary, which restarts for that, and starts the copy as its standby b.
func (n *node) newStandby() *node {
	n.t.Helper()
	const name = "b"
	s := &node{t: n.t, name: name, dir: filepath.Join(filepath.Dir(n.dir), name), port: harness.FreePort(n.t)}
	s.settings = map[string]string{"primary_conninfo": n.server.DSN() + "&application_name=" + name}
	n.stop()
	if out, err := exec.Command("cp", "-a", n.dir, s.dir).CombinedOutput(); err != nil {
		n.t.Fatalf("copy %s: %v\n%s", n.dir, err, out)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "data", "standby.signal"), nil, 0o644); err != nil {
		n.t.Fatal(err)
	}
	own(n.t, filepath.Join(s.dir, "data"), filepath.Join(s.dir, "data", "standby.signal"))
	n.t.Cleanup(s.stop)
	n.start()
	s.start()
	return s
}

// own gives a file the owner of another one.
func own(t *testing.T, like, path string) {
	t.Helper()
	info, err := os.Stat(like)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) start() {
	n.t.Helper()
	server, err := localpg.Start(context.Background(), localpg.Options{
		Dir: n.dir, Port: n.port, Relaxed: true, Settings: n.settings,
	})
	if err != nil {
		n.t.Fatalf("start node %s: %v", n.name, err)
	}
	n.server = server
}

// stop stops the node cleanly. It does nothing if the node is down.
func (n *node) stop() {
	if n.server != nil {
		_ = n.server.Stop(context.Background()) // fails if the node has ended
		n.server = nil
	}
}

// kill is kill -9 of the node's main process. Its other processes notice, and end without writing anything.
func (n *node) kill() {
	n.t.Helper()
	if err := syscall.Kill(n.pid(), syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	<-n.server.Done()
	n.stop()
}

// promote makes a standby the primary.
func (n *node) promote() {
	n.t.Helper()
	n.exec(`SELECT pg_promote(false)`) // waits for nothing: what is replayed meanwhile may cancel a statement that lasts
	eventually(n.t, "the node is promoted", func() bool {
		conn := n.connect()
		defer func() { _ = conn.Close(context.Background()) }()
		var standby bool
		err := conn.QueryRow(context.Background(), `SELECT pg_is_in_recovery()`).Scan(&standby)
		return err == nil && !standby
	})
}

// setReadOnly makes all sessions of the node read-only, or writable.
func (n *node) setReadOnly(on bool) {
	n.t.Helper()
	n.exec(fmt.Sprintf(`ALTER SYSTEM SET default_transaction_read_only = %t`, on))
	n.exec(`SELECT pg_reload_conf()`)
}

// cut ends all connections to the node, but those of its standbys.
func (n *node) cut() {
	n.t.Helper()
	n.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

// awaitStandby waits until the primary has a standby in the given state, such as sync or async.
func (n *node) awaitStandby(state string) {
	n.t.Helper()
	eventually(n.t, "a standby is "+state, func() bool {
		return query[bool](n, `SELECT EXISTS (
			SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1)`, state)
	})
}

// awaitWorker waits until a server on the node delivers. Its start needs commits, and comes after it listens.
func (n *node) awaitWorker() {
	n.t.Helper()
	eventually(n.t, "a server delivers", func() bool {
		return query[bool](n, `SELECT EXISTS (SELECT FROM stepwell.river_queue)`)
	})
}

func (n *node) connect() *pgx.Conn {
	n.t.Helper()
	conn, err := pgx.Connect(context.Background(), n.server.DSN())
	if err != nil {
		n.t.Fatalf("connect to node %s: %v", n.name, err)
	}
	return conn
}

// exec executes a statement of the test. It waits for no standby.
func (n *node) exec(sql string) {
	n.t.Helper()
	conn := n.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	for _, statement := range []string{`SET synchronous_commit = local`, `SET default_transaction_read_only = off`, sql} {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			n.t.Fatalf("%s on node %s: %v", statement, n.name, err)
		}
	}
}

// query reads one value.
func query[T any](n *node, sql string, args ...any) (value T) {
	n.t.Helper()
	conn := n.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&value); err != nil {
		n.t.Fatalf("%s on node %s: %v", sql, n.name, err)
	}
	return value
}

// databaseURL is the address of several nodes, in the given order.
func databaseURL(t *testing.T, parameters string, nodes ...*node) string {
	t.Helper()
	address, err := url.Parse(nodes[0].server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i] = "127.0.0.1:" + strconv.Itoa(n.port)
	}
	address.Host = strings.Join(hosts, ",")
	address.RawQuery += parameters
	return address.String()
}
