package server

import (
	"context"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
)

// ErrNoKey is the error of a start without any key.
var ErrNoKey = errors.New("no API key is configured: set STEPWELL_API_KEY to a long random string" +
	" (openssl rand -hex 32) and give it to the apps, or disable authentication with STEPWELL_OPEN=true")

// requireKey returns [ErrNoKey] unless a key is configured, the database has a valid admin key, people sign in by an
// identity provider, or authentication is explicitly disabled. Otherwise no client could use the server.
func (s *Server) requireKey(ctx context.Context) error {
	if s.APIKey != "" || s.Open || s.Provider != nil {
		return nil
	}
	exists, err := admin.HasAdminKey(ctx, s.pool, time.Now())
	if err == nil && !exists {
		err = ErrNoKey
	}
	return err
}
