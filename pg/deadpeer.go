package pg

import (
	"net"
	"time"
)

// keepAlive finds within 25 s that the host of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// detectDeadPeer makes a connection fail within about 25 s after its host has disappeared without closing it, as in a
// power cut or when a network is split.
func detectDeadPeer(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return // a Unix socket
	}
	_ = tcp.SetKeepAliveConfig(keepAlive) // a connection without it is as good as before
	setUnacknowledgedTimeout(tcp)
}
