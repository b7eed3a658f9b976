package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

type devCmd struct{}

// Run runs the server with a private Postgres, or with DATABASE_URL if it is set. It stops both when ctx is done or
// one of them ends; the data is kept. On a loopback address no API key is required unless one is configured.
func (devCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) (err error) {
	psql := `"$DATABASE_URL"` // not its value, which may contain a password
	if config.DatabaseURL == "" {
		dir := config.DataDir
		if dir == "" {
			if dir, err = localpg.DefaultDir(); err != nil {
				return err
			}
		}
		postgres, startErr := localpg.Start(ctx, localpg.Options{Dir: dir, Logger: logger})
		if startErr != nil {
			return startErr
		}
		defer func() {
			// If Postgres exited on its own, other errors are only consequences.
			if stopErr := postgres.Stop(context.WithoutCancel(ctx)); stopErr != nil {
				err = stopErr
			}
		}()
		var cancel context.CancelFunc
		ctx, cancel = cancelWhenDone(ctx, postgres.Done())
		defer cancel()
		config.DatabaseURL = postgres.DSN("postgres")
		psql = "'" + config.DatabaseURL + "'"
		logger.InfoContext(ctx, "private Postgres started", "folder", dir)
	}
	if config.AllowAddresses == "" { // functions in development run on this machine or network
		config.AllowAddresses = egress.Loopback + "," + egress.Private
	}
	config.warnIfOpen(ctx, logger)
	local := config.APIKey == "" && !config.Open && isLoopback(config.Listen)
	if local {
		config.Open = true
		logger.InfoContext(ctx, "no API key is required: only this machine can connect")
	}
	s := &server{config: config, role: roleAll, logger: logger, local: local}
	if err := s.start(ctx); err != nil {
		return err
	}
	url := s.config.scheme() + "://" + s.addr
	if s.config.UI {
		_, _ = fmt.Fprintf(stdout, "\nDashboard: %s/ui/\n", url)
	}
	_, _ = fmt.Fprintf(stdout, devBanner, url, psql)
	return s.serve(ctx)
}

// cancelWhenDone returns a context that is also canceled when done is closed.
func cancelWhenDone(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

const devBanner = `
Stepwell is up at %[1]s

Run workflows on any HTTP endpoint:
  curl -X PUT %[1]s/v1/deployments/my-function --json '{"url": "http://127.0.0.1:3000"}'
  curl %[1]s/v1/runs --json '{"workflow": "order", "deployment": "my-function"}'
Or connect a Workflow SDK app:
  npm i %[1]s/clients/world.tgz
  export STEPWELL_URL=%[1]s STEPWELL_DEPLOYMENT_ID=my-app WORKFLOW_TARGET_WORLD=@stepwell/world
and register the app:
  stepwell deployments add my-app http://127.0.0.1:3000

Query the log in SQL: psql %[2]s
  select seq, type, correlation_id, created_at from stepwell.events order by run_id, seq;

`
