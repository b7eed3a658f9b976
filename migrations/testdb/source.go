package testdb

import (
	"context"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// instance is a running Postgres.
type instance struct {
	dsn  string                      // of its database postgres, or the one in TEST_DATABASE_URL
	stop func(context.Context) error // nil for TEST_DATABASE_URL, which is not ours to stop
}

// startInstalled starts a private server with programs that are on this machine.
func startInstalled(ctx context.Context) (instance, error) {
	s, err := localpg.Start(ctx, localpg.ForTests())
	if err != nil {
		return instance{}, err
	}
	return instance{dsn: s.DSN(), stop: s.Stop}, nil
}
