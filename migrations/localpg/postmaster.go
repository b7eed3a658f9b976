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

// rejectUnlockedServer returns an error if a server that holds none of our locks runs on the data, because someone
// started it by hand. It removes the postmaster.pid of a crashed server: Postgres would refuse to start if another
// process has that process ID by now. Postgres still checks the data folder's shared memory.
func (f *folder) rejectUnlockedServer() error {
	path := filepath.Join(f.data(), "postmaster.pid")
	text, err := os.ReadFile(path) //nolint:gosec // our own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read postmaster.pid: %w", err)
	}
	if answers(strings.Split(string(text), "\n")) {
		return f.errInUse()
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return nil
}

// answers reports whether the server that a postmaster.pid describes is running: its process exists and its socket or
// port accepts connections. The lines are: process ID, data folder, start time, port, folder of the Unix socket, listen
// address.
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

// listens reports whether the address accepts connections.
func listens(network, address string) bool {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
