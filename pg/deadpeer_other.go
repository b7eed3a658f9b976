//go:build !linux

package pg

import "net"

// setUnacknowledgedTimeout does nothing on this system.
func setUnacknowledgedTimeout(*net.TCPConn) {}
