package localpg

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// freePort returns a port of 127.0.0.1 that nobody listens on just now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// portFree reports whether nobody listens on the port of 127.0.0.1.
func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

// lostPort reports whether the server ended because somebody took its port first. Postgres and Docker say so
// only in words; our servers speak English (LC_ALL=C).
func lostPort(err error) bool {
	var exit *ExitError
	if !errors.As(err, &exit) {
		return false
	}
	return strings.Contains(exit.Log, "ddress already in use") || strings.Contains(exit.Log, "port is already allocated")
}
