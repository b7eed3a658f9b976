package pg

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestVanishedHostsAreDetected(t *testing.T) {
	t.Parallel()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	conn := check.Value(net.Dial("tcp", l.Addr().String()))(t)
	defer func() { _ = conn.Close() }()
	detectDeadPeer(conn)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[int]int{
		unix.TCP_USER_TIMEOUT: 25_000, unix.TCP_KEEPIDLE: 10, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3,
	} {
		var got int
		read := func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) }
		check.NoError(t, raw.Control(read))
		if err != nil || got != want {
			t.Errorf("option %d: got %d, %v; want %d", option, got, err, want)
		}
	}
}
