// Command bench compares a Stepwell server with plain Postgres on the same machine, and writes a report.
//
// It starts a private Postgres and the built server, sends requests over HTTP, and stops everything afterwards. It is a
// separate module, and imports of the server only package embedded. README.md describes how to run it and how to read the report.
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
		os.Exit(1) //nolint:gocritic // everything has been stopped by now
	}
}

// command runs the bench, or what the bench starts as separate processes of the same program: the function, and the app
// with a server in it.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == functionCommand {
		return serveFunction(ctx, os.Stdout)
	}
	if len(args) > 0 && args[0] == embeddedCommand {
		return serveEmbedded(ctx, os.Stdout)
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

// options are the options of the command line.
type options struct {
	only       []string
	short      bool
	reportOnly bool
	root       string // folder of the server's module
	server     string // the server's binary
	postgres   string // the folder of the Postgres programs
	out        string
	line       string // the command line, for the report
}

func readOptions(args []string) (options, error) {
	o := options{line: strings.TrimSpace("go run . " + strings.Join(args, " "))}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run only these parts, separated by commas: "+strings.Join(partNames(), ", "))
	flags.BoolVar(&o.short, "short", false, "check that everything works, in a minute; the figures are meaningless")
	flags.BoolVar(&o.reportOnly, "report", false, "measure nothing, only write the report of the existing results")
	flags.StringVar(&o.root, "root", "..", "folder of the server's module")
	flags.StringVar(&o.server, "server", "", "the server's binary (default ROOT/bin/stepwell)")
	flags.StringVar(&o.postgres, "postgres", "", "folder of initdb, postgres and pgbench (default: search for them)")
	flags.StringVar(&o.out, "out", "", "folder for RESULTS.md and results/ (default: here; with -short, a temporary one)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(partNames(), name) {
			return o, fmt.Errorf("unknown part %q; the parts are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return o, o.fillIn()
}

// fillIn sets the defaults of missing options.
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

// part is one part of the bench.
type part struct {
	name   string
	does   func(context.Context, *bench) ([]row, error)
	title  string
	report func([]row) string
}

// parts lists all parts in the order of execution and of the report.
var parts = []part{
	{"append", measureAppends, "Append and send", reportAppends},
	{"engine", measureEngine, "Engine", reportEngine},
	{"overload", measureOverload, "Overload", reportOverload},
	{"fanout", measureFanOut, "Fan-out", reportFanOut},
	{"growth", measureGrowth, "Growth", reportGrowth},
	{"idle", measureIdle, "Idle", reportIdle},
	{"sdk", measureSDK, "One app of the SDK, on two backends", reportSDK},
	{"sdkgo", measureSDKGo, "Go SDK", reportSDKGo},
	{"peers", measurePeers, "Peers", reportPeers},
}

func partNames() []string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return names
}

// run measures the selected parts, and saves the results of each part when it is done.
func run(ctx context.Context, o options, p plan) (err error) {
	if _, err := os.Stat(o.server); err != nil {
		return fmt.Errorf("find the server: %w (make bench builds it)", err)
	}
	runtime.GOMAXPROCS(1) // the load generator needs no more, and idle threads looking for work cost it a tenth
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
		say("%s: started", p.name)
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

// bench is the state that the parts share.
type bench struct {
	options
	plan

	cluster *cluster
}

// say logs progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
