// Command bench compares a Stepwell server with plain Postgres on the same machine, and writes a report.
//
// It starts a private Postgres and the built server, sends requests over HTTP, and stops everything afterwards. It is a
// separate module, and imports of the server only what starts processes: embedded, localpg and the harness of e2e.
// README.md describes how to run it and how to read the report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
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
	rows       *regexp.Regexp // names of the rows of engine and overload to measure; nil for all
	root       string         // folder of the server's module
	server     string         // the server's binary
	out        string
	line       string // the command line, for the report
}

func readOptions(args []string) (options, error) {
	o := options{line: strings.TrimSpace("go run . " + strings.Join(args, " "))}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run only these parts, separated by commas: "+strings.Join(partNames(), ", "))
	flags.BoolVar(&o.short, "short", false, "check that everything works, in a minute; the figures are meaningless")
	flags.BoolVar(&o.reportOnly, "report", false, "measure nothing, only write the report of the existing results")
	rows := flags.String("rows", "", "of engine and overload, measure only the rows whose name matches this regular"+
		" expression, such as 'wire seq-3 (2x|80%)'; use -out as well")
	flags.StringVar(&o.root, "root", "..", "folder of the server's module")
	flags.StringVar(&o.server, "server", "", "the server's binary (default ROOT/bin/stepwell)")
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
	var err error
	if o.rows, err = regexp.Compile(*rows); err != nil {
		return o, fmt.Errorf("read -rows: %w", err)
	}
	return o, o.fillIn()
}

// wants reports whether a row is to be measured.
func (o options) wants(name string) bool { return o.rows == nil || o.rows.MatchString(name) }

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
	name  string
	does  func(context.Context, *bench) ([]row, error)
	title string
	about string // what its rows are
	than  string // the variant that the report compares the others with
}

// parts lists all parts in the order of execution and of the report.
var parts = []part{
	{"append", measureAppends, "Append and send",
		"The floor is the speed of pgbench with the same rows, written by one statement.", byFloor},
	{"engine", measureEngine, "Engine", "Whole runs with steps that do nothing. *wire* is the protocol of " +
		"the Workflow SDK, with the requests of its stable client; *contract* is the function contract; " +
		"*flow* is a document with the same steps, which the server continues by itself. Runs that are asked " +
		"for start at that rate, which is *size* percent of what 200 in flight have, independently of earlier ones; " +
		"their latencies count from the scheduled start, and *unfinished* were not done 10 s after the last start.", ""},
	{"overload", measureOverload, "Overload", "3-step runs in a closed loop, and then at 1, 2, 4 and 8 " +
		"times its rate (*size*). A start that is refused is not repeated; *retry after* is the mean of what " +
		"the server asks for. Only runs that ended while the load lasted, except for its first third, are in " +
		"*/s*; *late* ones ended afterwards. *After* is the rate in a closed loop 5 s later. Latencies are of " +
		"accepted runs, from the intended start.", ""},
	{"fanout", measureFanOut, "Fan-out", "A flow that has a step executed for each item of a list, so many " +
		"in flight. An operation is an item.", ""},
	{"cells", measureCells, "Cells", "3-step runs of the contract in an open loop, on one cell, a server with its own " +
		"Postgres, and twice as many on two.", ""},
	{"idle", measureIdle, "Idle",
		"A server with nothing to do. An operation is a second. Postgres' share includes the cost of the " +
			"measurement.", ""},
	{"disk", measureDisk, "Disk", "Bytes that an ended run of three steps leaves in each table and index, after a " +
		"vacuum. *archived*: the bytes in the tables of the archive, once the run is archived in the database.", ""},
	{"sdk", measureSDK, "One app of the SDK, on two backends", "The same build of one app of the Workflow " +
		"SDK (`workflow` 4.8.9), whose steps do nothing, on Stepwell and on the SDK's own " +
		"`@workflow/world-postgres` 4.3.7, which runs in the app's process. Both use the same Postgres. The " +
		"function is the app, which measures all times. With one run in flight there are pauses between the " +
		"runs.", onWorldPostgres},
	{"sdkgo", measureSDKGo, "Go SDK", "Runs of the Go SDK, whose steps do nothing and are executed where " +
		"the workflow runs, against the same by the function contract with remote steps. *Each step*: each " +
		"result is on disk before the next step begins. The floor is four inserts of a row, one after the " +
		"other, without server and HTTP.", byContract},
	{"peers", measurePeers, "Peers", "The same run on Stepwell and its peers, one after the other on the " +
		"same machine. Steps do nothing, and a client starts a run and awaits its end. *" + signalNap + "*: " +
		"the run receives a signal, and then sleeps for " + nap.String() + ".", onDBOS},
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
	c, err := startCluster(ctx)
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
