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

// Run starts a private Postgres and the server on it, and stops both when the context or either ends.
// Their data stays for the next time. A DATABASE_URL is used instead when it is set. Where only this machine can
// connect, no key is asked for unless there is one in the environment.
func (devCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) (err error) {
	psql := `"$DATABASE_URL"` // which may have a password that is nobody's business
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
			// Why Postgres ended, if it did by itself, is the cause of all else.
			if stopErr := postgres.Stop(context.WithoutCancel(ctx)); stopErr != nil {
				err = stopErr
			}
		}()
		var cancel context.CancelFunc
		ctx, cancel = endWith(ctx, postgres.Done())
		defer cancel()
		config.DatabaseURL = postgres.DSN("postgres")
		psql = "'" + config.DatabaseURL + "'"
		logger.InfoContext(ctx, "private Postgres is up", "folder", dir)
	}
	if config.AllowAddresses == "" { // what is developed runs here
		config.AllowAddresses = egress.Loopback + "," + egress.Private
	}
	config.warnIfOpen(ctx, logger)
	local := config.APIKey == "" && !config.Open && loopback(config.Listen)
	if local {
		config.Open = true
		logger.InfoContext(ctx, "no API key is asked for: only this machine can connect")
	}
	s := &server{config: config, role: roleAll, logger: logger, local: local}
	if err := s.start(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, devBanner, s.addr, psql)
	return s.serve(ctx)
}

// endWith is a context that also ends when done is closed.
func endWith(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
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
Stepwell is up at http://%[1]s

Have it continue runs of any HTTP endpoint:
  curl -X PUT http://%[1]s/v1/deployments/my-function --json '{"url": "http://127.0.0.1:3000"}'
  curl http://%[1]s/v1/runs --json '{"workflow": "order", "deployment": "my-function"}'
Or point an app of the Workflow SDK at it:
  npm i http://%[1]s/clients/world.tgz
  export STEPWELL_URL=http://%[1]s STEPWELL_DEPLOYMENT_ID=my-app WORKFLOW_TARGET_WORLD=@stepwell/world
and tell it where the app is:
  stepwell deployments add my-app http://127.0.0.1:3000

The log in SQL: psql %[2]s
  select seq, type, correlation_id, created_at from stepwell.events order by run_id, seq;

`
