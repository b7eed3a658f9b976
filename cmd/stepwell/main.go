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
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
	"github.com/stepwell-dev/stepwell/migrations"
)

// cli is the command line. What concerns the process comes from the environment: see [config].
type cli struct {
	Dev     devCmd     `cmd:"" group:"server" help:"Run everything here, with a private Postgres."`
	Serve   serveCmd   `cmd:"" group:"server" help:"Run the server on the Postgres of DATABASE_URL."`
	Migrate migrateCmd `cmd:"" group:"server" help:"Bring the database of DATABASE_URL up to date, and exit."`
	Health  healthCmd  `cmd:"" group:"server" help:"Ask the server on this machine whether it is ready."`

	remote.Commands

	Verify    verifyCmd    `cmd:"" group:"database" help:"Compare rows with the log they must be the fold of."`
	Rebuild   rebuildCmd   `cmd:"" group:"database" help:"Restore rows that differ from the log."`
	Export    exportCmd    `cmd:"" group:"database" help:"Write a run to a file."`
	Import    importCmd    `cmd:"" group:"database" help:"Restore an ended run from a file."`
	Show      showCmd      `cmd:"" group:"database" help:"Print the log in a file."`
	Retention retentionCmd `cmd:"" group:"database" help:"Say how long ended runs are kept."`

	Completion completionCmd `cmd:"" group:"shell" help:"Print what makes a shell complete commands."`
	Complete   completeCmd   `cmd:"" name:"__complete" group:"shell" hidden:""`
}

// groups are the titles of commands and flags in --help.
var groups = kong.Groups{
	"server":            "The server:",
	remote.CommandGroup: "Over the API of a server:",
	remote.FlagGroup:    "Flags of the commands over the API:",
	"database":          "On the database of DATABASE_URL:",
	"shell":             "For your shell:",
}

func main() {
	ballast := newBallast(os.LookupEnv)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	console := remote.Console{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Ages: isTerminal(os.Stdout),
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

// run is execute for commands that read nothing from the console.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return execute(ctx, args, remote.Console{Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr, Now: time.Now})
}

// execute executes one command line until it is done or the context ends.
func execute(ctx context.Context, args []string, console remote.Console) error {
	var commands cli
	parser, err := newParser(&commands, console)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return explained(err)
	}
	if err := refuseStrayFlags(parsed); err != nil {
		return err
	}
	parsed.Bind(parser.Model, console)
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(console.Stdout, (*io.Writer)(nil))
	return parsed.Run()
}

// newParser is that of the command line. What only some commands need is made for those alone: a wrong setting of the
// server is nothing to a command that speaks to another.
func newParser(commands *cli, console remote.Console) (*kong.Kong, error) {
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

// description is what --help begins with.
func description() string {
	var b strings.Builder
	b.WriteString("Durable workflows for serverless functions, on nothing but Postgres.\n\nExit codes:\n\n")
	for _, e := range remote.Exits {
		fmt.Fprintf(&b, "    %3d  %s\n", e.Code, e.Meaning)
	}
	return b.String()
}

// explained is an error in the command line, with where to read on.
func explained(err error) error {
	command := ""
	if wrong := (*kong.ParseError)(nil); errors.As(err, &wrong) {
		if node := wrong.Context.Selected(); node != nil {
			command = " " + node.Path()
		}
	}
	return remote.UsageError(fmt.Errorf("%w\nstepwell%s --help says what there is", err, command))
}

// refuseStrayFlags refuses flags of the commands over the API where they would do nothing.
func refuseStrayFlags(parsed *kong.Context) error {
	command := parsed.Selected()
	if command == nil || command.ClosestGroup() != nil && command.ClosestGroup().Key == remote.CommandGroup {
		return nil
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && p.Flag.Group != nil && p.Flag.Group.Key == remote.FlagGroup && !p.Resolved {
			return remote.UsageError(fmt.Errorf("stepwell %s takes no --%s: it does not speak to a server",
				command.Path(), p.Flag.Name))
		}
	}
	return nil
}

var errNoDatabase = errors.New("DATABASE_URL is not set: give a Postgres, or use stepwell dev, which starts one")

type serveCmd struct {
	Role role `enum:"all,api,worker,function" default:"all" env:"STEPWELL_ROLE" help:"What to run: ${enum}."`
}

// Run serves until the context ends.
func (c serveCmd) Run(ctx context.Context, config config, logger *slog.Logger) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	config.warnIfOpen(ctx, logger)
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
