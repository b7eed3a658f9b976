package pg

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledgedTimeout is how long the kernel waits for the acknowledgement of data that it has sent.
const unacknowledgedTimeout = 25 * time.Second

// setUnacknowledgedTimeout bounds how long sent data may stay unacknowledged. The kernel sends no keep-alives
// meanwhile, and would by itself try for about 15 minutes.
func setUnacknowledgedTimeout(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { // a connection without the option is as good as before
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(unacknowledgedTimeout.Milliseconds()))
	})
}
