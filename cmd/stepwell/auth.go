package main

import (
	"context"
	"log/slog"
	"net"
)

// warnIfOpen logs a warning if STEPWELL_OPEN is set.
func (c config) warnIfOpen(ctx context.Context, logger *slog.Logger) {
	if c.Open {
		logger.WarnContext(ctx, "authentication is disabled by STEPWELL_OPEN", "listen", c.Listen)
	}
}

// isLoopback reports whether only this machine can connect to the address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
