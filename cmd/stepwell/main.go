// Command stepwell is the server and its command line. It reads the configuration and wires the packages together. It
// imports everything.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/server"
)

// cli is the kong grammar of the command line. The server's settings come from the environment: see [config].
type cli struct {
	Dev     devCmd     `cmd:"" group:"server" help:"Run the server with a private Postgres."`
	Serve   serveCmd   `cmd:"" group:"server" help:"Run the server on the database at DATABASE_URL."`
	Migrate migrateCmd `cmd:"" group:"server" help:"Migrate the database at DATABASE_URL, and exit."`
	Health  healthCmd  `cmd:"" group:"server" help:"Check whether the server on this machine is ready."`
	Version versionCmd `cmd:"" group:"server" help:"Print the version, the commit and the Go version of this binary."`

	Completion completionCmd `cmd:"" group:"shell" help:"Print the completion of commands and flags for a shell."`
	Man        manCmd        `cmd:"" group:"shell" help:"Print the manual page."`

	remote.Commands `group:"api-commands"`

	Verify    verifyCmd    `cmd:"" group:"database" help:"Check that the rows of runs match their logs."`
	Rebuild   rebuildCmd   `cmd:"" group:"database" help:"Rebuild rows that differ from the log."`
	Export    exportCmd    `cmd:"" group:"database" help:"Write a run to a file."`
	Import    importCmd    `cmd:"" group:"database" help:"Restore an ended run from a file."`
	Show      showCmd      `cmd:"" group:"database" help:"Print the log in an exported file."`
	Retention retentionCmd `cmd:"" group:"database" help:"Configure how long ended runs are kept."`
}

// groups are the headings in --help.
var groups = kong.Groups{
	"server":            "Server:",
	remote.CommandGroup: "API client:",
	remote.FlagGroup:    "API client flags:",
	"documents":         "Documents of flows (no server):",
	"shell":             "Shell and manual:",
	"database":          "Direct database access (DATABASE_URL):",
}

func main() {
	ballast := newBallast(os.LookupEnv)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	console := remote.Console{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, RelativeTimes: isTerminal(os.Stdout),
	}
	err := execute(ctx, os.Args[1:], console)
	if err != nil && !errors.Is(err, remote.ErrInterrupted) {
		fmt.Fprintln(os.Stderr, "stepwell:", err)
	}
	runtime.KeepAlive(ballast)
	os.Exit(remote.ExitCode(err))
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// execute runs one command line.
func execute(ctx context.Context, args []string, console remote.Console) error {
	parser, err := newParser(new(cli), console)
	if err != nil {
		return err
	}
	return executeWith(ctx, parser, args, console)
}

func executeWith(ctx context.Context, parser *kong.Kong, args []string, console remote.Console) error {
	parsed, err := parser.Parse(args)
	if err != nil {
		return withHelpHint(err)
	}
	if err := refuseStrayFlags(parsed); err != nil {
		return err
	}
	parsed.Bind(console)
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(console.Stdout, (*io.Writer)(nil))
	return parsed.Run()
}

// newParser returns the command line's parser. The configuration, the logger and the session are created only for
// commands that need them, so that API commands do not fail on an invalid server setting.
func newParser(commands *cli, console remote.Console) (*kong.Kong, error) {
	commands.Projects.Plugins = kong.Plugins{&projectsCmd{}}
	return kong.New(commands,
		kong.Name("stepwell"),
		groups, kong.Vars(remote.Vars),
		kong.Description(description()),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true}),
		kong.Writers(console.Stdout, console.Stderr),
		kong.BindToProvider(func() (config, error) { return readConfig(os.Environ()) }),
		kong.BindToProvider(func(c config) (*slog.Logger, error) { return c.newLogger(console.Stderr) }),
		kong.BindToProvider(func() (*remote.Session, error) { return commands.Session(console) }),
	)
}

// description is the introduction of --help.
func description() string {
	var b strings.Builder
	b.WriteString("Durable workflows for serverless functions, on nothing but Postgres.\n\nExit codes:\n\n")
	for _, e := range remote.Exits {
		fmt.Fprintf(&b, "    %3d  %s\n", e.Code, e.Meaning)
	}
	return b.String()
}

// withHelpHint turns a parse error into a usage error that names the command's help.
func withHelpHint(err error) error {
	command := ""
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		if node := parse.Context.Selected(); node != nil {
			command = " " + node.Path()
		}
	}
	return remote.UsageError(fmt.Errorf("%w\nsee stepwell%s --help", err, command))
}

// refuseStrayFlags refuses API client flags on commands that ignore them. To kong they are global flags.
func refuseStrayFlags(parsed *kong.Context) error {
	command := parsed.Selected()
	if command == nil || command.ClosestGroup() != nil && command.ClosestGroup().Key == remote.CommandGroup {
		return nil
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && p.Flag.Group != nil && p.Flag.Group.Key == remote.FlagGroup && !p.Resolved {
			return remote.UsageError(fmt.Errorf("stepwell %s takes no --%s: it does not call the API",
				command.Path(), p.Flag.Name))
		}
	}
	return nil
}

var errNoDatabase = errors.New(
	"DATABASE_URL is not set: set it to a Postgres URL, or use stepwell dev, which starts a private Postgres")

type serveCmd struct {
	Role server.Role `enum:"all,api,worker,function" default:"all" env:"STEPWELL_ROLE" help:"The parts to run: ${enum}."`
}

// Run serves until ctx is done.
func (c serveCmd) Run(ctx context.Context, config config, logger *slog.Logger) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	config.warnIfOpen(ctx, logger)
	limitMemory(ctx, logger)
	p := &program{config: config, role: c.Role, logger: logger}
	switch err := p.start(ctx); {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil // it was asked to stop before it had started
	case err != nil:
		return err
	}
	return p.serve(ctx)
}

// memoryShare is the share of the container's memory that Go's heap should not exceed.
const memoryShare = 0.75

// limitMemory makes the garbage collector keep the process within its container's memory limit, if there is one. The
// variable GOMEMLIMIT takes precedence.
func limitMemory(ctx context.Context, logger *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare))
	if err != nil {
		logger.WarnContext(ctx, "no memory limit: set GOMEMLIMIT", "error", err)
		return
	}
	logger.DebugContext(ctx, "memory limit", "bytes", limit)
}

type migrateCmd struct{}

// Run migrates the database.
func (migrateCmd) Run(ctx context.Context, config config, logger *slog.Logger) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	if err := (migrations.Migrator{Logger: logger}).Up(ctx, config.SessionURL(), config.Schema); err != nil {
		return err
	}
	logger.InfoContext(ctx, "database is up to date", "schema", config.Schema)
	return nil
}
