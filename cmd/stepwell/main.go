// Command stepwell is the server and its command line: it reads the configuration, wires the packages
// together, starts and stops. It imports everything.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/migrations"
)

// cli is the command line. What concerns the process comes from the environment: see [config].
type cli struct {
	Dev         devCmd         `cmd:"" help:"Run everything here, with a private Postgres."`
	Serve       serveCmd       `cmd:"" help:"Run the server on the Postgres of DATABASE_URL."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database of DATABASE_URL up to date, and exit."`
	Deployments deploymentsCmd `cmd:"" help:"Say where the functions of apps are."`
	Messages    messagesCmd    `cmd:"" help:"Look after messages that could not be delivered."`
	Verify      verifyCmd      `cmd:"" help:"Compare rows with the log they must be the fold of."`
	Rebuild     rebuildCmd     `cmd:"" help:"Restore rows that differ from the log."`
	Export      exportCmd      `cmd:"" help:"Write a run to a file."`
	Import      importCmd      `cmd:"" help:"Restore an ended run from a file."`
	Show        showCmd        `cmd:"" help:"Print the log in a file."`
	Retention   retentionCmd   `cmd:"" help:"Say how long ended runs are kept."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "stepwell:", err)
		os.Exit(1)
	}
}

// run executes one command line until it is done or the context ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var commands cli
	parser, err := kong.New(&commands,
		kong.Name("stepwell"),
		kong.Description("Durable workflows for serverless functions, on nothing but Postgres."),
		kong.Writers(stdout, stderr),
	)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return err
	}
	config, err := readConfig(os.Environ())
	if err != nil {
		return err
	}
	logger, err := config.newLogger(stderr)
	if err != nil {
		return err
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(stdout, (*io.Writer)(nil))
	return parsed.Run(config, logger)
}

var errNoDatabase = errors.New("DATABASE_URL is not set: give a Postgres, or use stepwell dev, which starts one")

type serveCmd struct {
	Role role `enum:"all,api,worker" default:"all" env:"STEPWELL_ROLE" help:"What to run: ${enum}."`
}

// Run serves until the context ends.
func (c serveCmd) Run(ctx context.Context, config config, logger *slog.Logger) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	s := &server{config: config, role: c.Role, logger: logger}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

type migrateCmd struct{}

// Run migrates the database.
func (migrateCmd) Run(ctx context.Context, config config, logger *slog.Logger) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	if err := migrations.Up(ctx, config.DatabaseURL, config.Schema); err != nil {
		return err
	}
	logger.InfoContext(ctx, "database is up to date", "schema", config.Schema)
	return nil
}
