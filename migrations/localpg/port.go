package localpg

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// freePort returns a port of 127.0.0.1 that is currently free.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// portFree reports whether the port of 127.0.0.1 is free.
func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

// portTaken reports whether the server exited because another process took its port first. Postgres and Docker report
// that only in their logs, which are in English (LC_ALL=C).
func portTaken(err error) bool {
	exit, ok := errors.AsType[*ExitError](err)
	return ok && (strings.Contains(exit.Log, "ddress already in use") ||
		strings.Contains(exit.Log, "port is already allocated"))
}
