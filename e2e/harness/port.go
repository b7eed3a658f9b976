package harness

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a port on which nothing listens. It is below the range of outgoing connections, so that it stays
// free while the process that has it restarts.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	for range 100 {
		port := 12_000 + rand.IntN(18_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("found no free port")
}
