// Command bench measures a Stepwell server against what the machine's Postgres can do, and writes a report.
//
// It starts a Postgres of its own, runs the built server as users do, calls it over HTTP, and stops everything again.
// It is a module of its own, which imports nothing of the server's. README.md says how to run and how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // everything that was started has been stopped by now
	}
}

// command runs what the arguments ask for: the bench itself, or the function that the bench starts as a process of
// its own.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == functionCommand {
		return serveFunction(ctx, os.Stdout)
	}
	o, err := readOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.reportOnly {
		return writeReport(o.out)
	}
	if err := run(ctx, o, planFor(o.short)); err != nil {
		return err
	}
	return writeReport(o.out)
}

// options are what the command line says.
type options struct {
	only       []string
	short      bool
	reportOnly bool
	root       string // of the server's module
	server     string // the server's binary
	postgres   string // the folder of the Postgres programs
	out        string
	line       string // the command, for the report
}

func readOptions(args []string) (options, error) {
	o := options{line: strings.TrimSpace("go run . " + strings.Join(args, " "))}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run these parts, separated by commas: "+strings.Join(partNames(), ", "))
	flags.BoolVar(&o.short, "short", false, "see that everything works, in seconds; the figures mean nothing")
	flags.BoolVar(&o.reportOnly, "report", false, "measure nothing, make the report of the results that there are")
	flags.StringVar(&o.root, "root", "..", "the server's module")
	flags.StringVar(&o.server, "server", "", "the server's binary (ROOT/bin/stepwell)")
	flags.StringVar(&o.postgres, "postgres", "", "the folder of initdb, postgres and pgbench (found by itself)")
	flags.StringVar(&o.out, "out", "", "the folder of RESULTS.md and results/ (here; with -short a temporary one)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not understood", flags.Arg(0))
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(partNames(), name) {
			return o, fmt.Errorf("there is no part %q; there are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return o, o.fillIn()
}

// fillIn gives the options that were left out their values.
func (o *options) fillIn() (err error) {
	if o.server == "" {
		o.server = filepath.Join(o.root, "bin", "stepwell")
	}
	if o.server, err = filepath.Abs(o.server); err != nil {
		return fmt.Errorf("find the server: %w", err)
	}
	switch {
	case o.out == "" && o.short:
		o.out, err = os.MkdirTemp("", "stepwell-bench-short-")
	case o.out == "":
		o.out = "."
	}
	if err != nil {
		return fmt.Errorf("make a folder for the results: %w", err)
	}
	return nil
}

// part is one of the bench's measurements.
type part struct {
	name string
	does func(context.Context, *bench) ([]row, error)
}

// parts are all, in the order in which they run and are reported.
var parts = []part{
	{"append", measureAppends},
	{"gopath", measureGoPath},
	{"engine", measureEngine},
	{"queue", measureQueue},
	{"growth", measureGrowth},
	{"idle", measureIdle},
	{"sdk", measureSDK},
}

func partNames() []string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return names
}

// run measures what the options ask for, and keeps the results of each part as soon as there are such.
func run(ctx context.Context, o options, p plan) (err error) {
	if _, err := os.Stat(o.server); err != nil {
		return fmt.Errorf("find the server: %w (make bench builds it)", err)
	}
	runtime.GOMAXPROCS(1) // the load needs less, and threads that look for work cost it a tenth
	c, err := startCluster(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	b := &bench{options: o, plan: p, cluster: c}
	env, err := b.environment(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if len(o.only) > 0 && !slices.Contains(o.only, p.name) {
			continue
		}
		began := time.Now()
		say("%s: began", p.name)
		rows, err := p.does(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		say("%s: %s", p.name, time.Since(began).Round(time.Second))
		err = saveResults(o.out, results{Part: p.name, Began: began, Took: time.Since(began), Environment: env, Rows: rows})
		if err != nil {
			return err
		}
	}
	return nil
}

// bench is what the parts share.
type bench struct {
	options
	plan

	cluster *cluster
}

// say tells whoever waits how far it is.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
