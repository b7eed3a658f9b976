package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/server"
)

type devCmd struct {
	Open *bool `negatable:"" env:"STEPWELL_OPEN_BROWSER" help:"Open the dashboard; default is on a first start."`
}

// Run runs the server with a private Postgres, or with DATABASE_URL if it is set. It stops both when ctx is done or
// one of them ends; the data is kept. On a loopback address no API key is required unless one is configured.
func (c devCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) (err error) {
	psql := `"$DATABASE_URL"` // not its value, which may contain a password
	start := devStart{asked: c.Open, env: os.LookupEnv, goos: runtime.GOOS}
	if config.DatabaseURL == "" {
		dir := config.DataDir
		if dir == "" {
			if dir, err = localpg.DefaultDir(); err != nil {
				return err
			}
		}
		_, missing := os.Stat(dir)
		start.first = errors.Is(missing, fs.ErrNotExist)
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
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() { // ends when Postgres is stopped, if not before
			<-postgres.Done()
			cancel()
		}()
		config.DatabaseURL = postgres.DSN()
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
	p := &program{config: config, role: server.RoleAll, logger: logger, local: local, pullByDefault: true}
	if err := p.start(ctx); err != nil {
		return err
	}
	url := p.config.Scheme() + "://" + p.Addr()
	if p.config.UI {
		_, _ = fmt.Fprintf(stdout, "\nDashboard: %s/ui/\n", url)
		f, ok := stdout.(*os.File)
		if start.terminal = ok && isTerminal(f); start.opensBrowser() {
			_ = remote.OpenBrowser(ctx, url+"/ui/") // its address is printed
		}
	}
	_, _ = fmt.Fprintf(stdout, devBanner, url, psql)
	return p.serve(ctx)
}

// devStart is what decides whether "dev" opens the dashboard.
type devStart struct {
	// asked is the flag or the setting; nil for neither.
	asked *bool
	// first tells that the data folder is new, and terminal that standard output is one.
	first, terminal bool
	goos            string
	env             func(string) (string, bool)
}

// opensBrowser reports whether the start opens the dashboard in a browser: when asked to, or on the first start that a
// person makes at a machine with a display.
func (s devStart) opensBrowser() bool {
	if s.asked != nil {
		return *s.asked
	}
	return s.first && s.terminal && remote.CanOpenBrowser(s.goos, s.env)
}

const devBanner = `
Stepwell is up at %[1]s

Run workflows on any HTTP endpoint:
  curl -X PUT %[1]s/v1/deployments/my-function --json '{"url": "http://127.0.0.1:3000"}'
  curl %[1]s/v1/runs --json '{"workflow": "order", "deployment": "my-function"}'
Or write one in Go, a plain function, as docs/sdk-go.md shows:
  export STEPWELL_URL=%[1]s
  export STEPWELL_SIGNING_KEYS=$(stepwell signing-keys create --rotate)
  go build -o orders . && ./orders
Or connect a Workflow SDK app:
  npm i %[1]s/clients/world.tgz
  export STEPWELL_URL=%[1]s STEPWELL_DEPLOYMENT_ID=my-app WORKFLOW_TARGET_WORLD=@stepwell/world

Query the log in SQL: psql %[2]s
  select seq, type, correlation_id, created_at from stepwell.events order by run_id, seq;

`
