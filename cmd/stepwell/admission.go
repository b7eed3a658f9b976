package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/eventlog/access"
)

// errNoKey is of a server that nobody could use, or everybody.
var errNoKey = errors.New("nobody has a key to this server: set STEPWELL_API_KEY to a long random text" +
	" (openssl rand -hex 32) and give it to the apps, or set STEPWELL_OPEN=true to let in everyone who can connect")

// admission settles who is let in, before anybody can ask. It fails with [errNoKey] when there is neither a key in the
// environment nor a good admin key in the database, and nobody has said that the server is to be open.
func (s *server) admission(ctx context.Context) error {
	s.keys = access.NewKeys(s.pool, time.Now)
	if s.config.APIKey != "" || s.config.Open {
		return nil
	}
	exists, err := admin.AdminKeyExists(ctx, s.pool, time.Now())
	if err == nil && !exists {
		err = errNoKey
	}
	return err
}

// warnIfOpen says what STEPWELL_OPEN means.
func (c config) warnIfOpen(ctx context.Context, logger *slog.Logger) {
	if c.Open {
		logger.WarnContext(ctx, "everyone who can connect may do everything, as STEPWELL_OPEN says", "listen", c.Listen)
	}
}

// loopback reports whether only this machine can connect to the address.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
