package localpg

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// refuseStranger looks for a server that somebody started on the data by hand, which holds none of our
// locks. What a crash left behind is removed: Postgres takes any process that got the dead server's ID since
// for that server, and would not start. Postgres's own last guard, the shared memory that belongs to the data
// folder, stays in force.
func (f *folder) refuseStranger() error {
	path := filepath.Join(f.data(), "postmaster.pid")
	text, err := os.ReadFile(path) //nolint:gosec // our own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read postmaster.pid: %w", err)
	}
	if answers(strings.Split(string(text), "\n")) {
		return &InUseError{Dir: f.dir}
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return nil
}

// answers reports whether the server described by the lines of a postmaster.pid lives: its process exists,
// and somebody listens where it should. The lines are: process ID, data folder, start time, port, folder of
// the Unix socket, listen address.
func answers(lines []string) bool {
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || !alive(pid) || len(lines) < 6 {
		return false
	}
	port, socket, host := strings.TrimSpace(lines[3]), strings.TrimSpace(lines[4]), strings.TrimSpace(lines[5])
	if host == "*" {
		host = "127.0.0.1"
	}
	return socket != "" && listens("unix", filepath.Join(socket, ".s.PGSQL."+port)) ||
		host != "" && listens("tcp", net.JoinHostPort(host, port))
}

// listens reports whether a connection to the address succeeds.
func listens(network, address string) bool {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
