package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
)

var errNoKey = errors.New("no API key is configured: set STEPWELL_API_KEY to a long random string" +
	" (openssl rand -hex 32) and give it to the apps, or disable authentication with STEPWELL_OPEN=true")

// requireKey returns [errNoKey] unless a key is configured, the database has a valid admin key, or authentication is
// explicitly disabled. Otherwise no client could use the server.
func (s *server) requireKey(ctx context.Context) error {
	if s.config.APIKey != "" || s.config.Open {
		return nil
	}
	exists, err := admin.HasAdminKey(ctx, s.pool, time.Now())
	if err == nil && !exists {
		err = errNoKey
	}
	return err
}

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
