package testdb

import (
	"context"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// settings are those of a Postgres that only tests use.
func settings() map[string]string {
	return map[string]string{"max_connections": "600", "synchronous_commit": "off"}
}

// instance is a running Postgres.
type instance struct {
	dsn  string                      // of its database postgres, or the one in TEST_DATABASE_URL
	stop func(context.Context) error // nil for TEST_DATABASE_URL, which is not ours to stop
}

// startInstalled starts a private server with programs that are on this machine.
func startInstalled(ctx context.Context) (instance, error) {
	s, err := localpg.Start(ctx, localpg.Options{InstalledOnly: true, Settings: settings()})
	if err != nil {
		return instance{}, err
	}
	return instance{dsn: s.DSN(), stop: s.Stop}, nil
}
