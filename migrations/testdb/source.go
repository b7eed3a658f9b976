package testdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// sources are the ways to start a Postgres, in the order in which they are tried.
type sources struct {
	installed func(context.Context) (instance, error) // returns a *localpg.MissingError if there are no programs
	container func(context.Context) (instance, error) // returns a *noDaemonError if there is no Docker
}

// systemSources are those of this machine.
func systemSources() sources {
	return sources{installed: startInstalled, container: startContainer}
}

// find returns the server of TEST_DATABASE_URL, or starts one from the first source that is available. A source that
// is available and fails is an error: the next one would hide it.
func (s sources) find(ctx context.Context, testDatabaseURL string) (instance, error) {
	if testDatabaseURL != "" {
		return instance{dsn: testDatabaseURL}, nil
	}
	found, err := s.installed(ctx)
	var missing *localpg.MissingError
	if errors.As(err, &missing) {
		found, err = s.container(ctx)
	}
	var noDaemon *noDaemonError
	if errors.As(err, &noDaemon) {
		err = &localpg.MissingError{Tried: append(missing.Tried, noDaemon.Error())}
	}
	if err != nil {
		return instance{}, fmt.Errorf("TEST_DATABASE_URL is not set: %w", err)
	}
	return found, nil
}

// startInstalled starts a private server with programs that are on this machine.
func startInstalled(ctx context.Context) (instance, error) {
	s, err := localpg.Start(ctx, localpg.Options{InstalledOnly: true, Settings: settings()})
	if err != nil {
		return instance{}, err
	}
	return instance{dsn: s.DSN(), stop: s.Stop}, nil
}

// noDaemonError reports that no Docker daemon answers.
type noDaemonError struct{ cause error }

// Error is one line.
func (e *noDaemonError) Error() string {
	return "Docker: " + strings.ReplaceAll(e.cause.Error(), "\n", "; ")
}

// Unwrap returns the reason.
func (e *noDaemonError) Unwrap() error { return e.cause }
