package stepwell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/api"
)

// command is a subcommand of [App.Main].
type command struct {
	help string
	run  func(ctx context.Context, args []string) error
}

// Main is the program of an app. It carries out one of the commands serve, replay, schema and version:
//
//	serve [-listen ADDRESS] [-announce URL] [-unsigned REASON]
//
// Serve serves the app until ctx ends, usually with a signal, and then shuts down within 25 seconds. It listens on
// ADDRESS; by default on all addresses at the port PORT of the environment, and without PORT on 127.0.0.1:3000. Calls
// must be signed with a key of STEPWELL_SIGNING_KEYS unless there is a reason why not. With -announce it registers
// itself at the URL, with the server of STEPWELL_URL and the key STEPWELL_API_KEY; see [App.Announce].
//
// Replay replays runs of a server with this code, and fails if one differs. It executes and writes nothing.
//
// Schema prints the workflows with the JSON Schemas of their inputs and outputs, and version the build.
func (a *App) Main(ctx context.Context, args []string) error {
	commands := map[string]command{
		"serve": {"serve the app", a.mainServe},
		"replay": {"replay runs of a server with this code", func(ctx context.Context, args []string) error {
			return a.replayRuns(ctx, args, os.Stdout)
		}},
		"schema":  {"print the workflows with the schemas of their inputs and outputs", a.mainSchema},
		"version": {"print the build", a.mainVersion},
	}
	if len(args) > 0 {
		if c, ok := commands[args[0]]; ok {
			err := c.run(ctx, args[1:])
			if err == flag.ErrHelp { //nolint:errorlint // the bare one has been printed by parse
				return nil
			}
			return err
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&b, "\n  %-10s %s", name, commands[name].help)
	}
	usage := fmt.Sprintf("%s needs one of these commands:%s", a.name, b.String())
	if len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		_, err := fmt.Println(usage)
		return err
	}
	return errors.New(usage)
}

// flags returns the flags of a command, which are parsed by [parse].
func (a *App) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(a.name+" "+name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parse parses the arguments of a command that has only flags. The error explains how to use it; for those who ask with
// -h, it is printed and the error is [flag.ErrHelp].
func parse(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Printf("flags of %s:\n", f.Name())
		f.SetOutput(os.Stdout)
		f.PrintDefaults()
		return flag.ErrHelp
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err == nil {
		return nil
	}
	var b strings.Builder
	f.SetOutput(&b)
	f.PrintDefaults()
	return fmt.Errorf("%s: %w\n%s", f.Name(), err, b.String())
}

const (
	// attemptsFinish is how long a program that shuts down lets its calls finish before it ends their contexts.
	attemptsFinish = 20 * time.Second
	// headerTime limits how long a request's header may take.
	headerTime = 10 * time.Second
)

func (a *App) mainServe(ctx context.Context, args []string) error {
	address := "127.0.0.1:3000"
	if port := os.Getenv("PORT"); port != "" {
		address = ":" + port
	}
	f := a.flags("serve")
	listen := f.String("listen", address, "the `ADDRESS` to listen on")
	announce := f.String("announce", "", "the `URL` at which the server reaches the app; registers it there")
	unsigned := f.String("unsigned", "", "accept calls from everybody, for this `REASON`")
	if err := parse(f, args); err != nil {
		return err
	}
	h, err := a.mainHandler(*unsigned)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("%w: choose another address with -listen, or another port with PORT", err)
	}
	a.logger.InfoContext(ctx, "listening", "app", a.name, "address", l.Addr().String())
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	if *announce != "" {
		err = a.announceFromEnv(ctx, *announce)
	}
	if err == nil {
		select {
		case err = <-ended:
		case <-ctx.Done():
		}
	}
	return errors.Join(err, a.stop(ctx, s))
}

func (a *App) mainHandler(unsigned string) (http.Handler, error) {
	if unsigned != "" {
		return a.handler("", unsigned)
	}
	if a.signingKeys == "" && a.unsigned == "" {
		return nil, errors.New("there are no signing keys: set STEPWELL_SIGNING_KEYS to one that stepwell signing-keys " +
			"create prints, or accept calls from everybody with -unsigned REASON")
	}
	return a.Handler()
}

func (a *App) announceFromEnv(ctx context.Context, url string) error {
	c, err := NewClient(ClientFromEnv())
	if err != nil {
		return err
	}
	return a.Announce(ctx, c, url)
}

// stop closes the listener at once, so that the server finds another process. It waits for calls as [App.Shutdown]
// does.
func (a *App) stop(ctx context.Context, s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptsFinish+lastAnswers)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Shutdown(ctx) }()
	patience, enough := context.WithTimeout(ctx, attemptsFinish)
	defer enough()
	if err := a.Shutdown(patience); err != nil {
		a.logger.WarnContext(ctx, "calls were cut short", "error", err)
	}
	if err := <-closed; err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

func (a *App) mainSchema(_ context.Context, args []string) error {
	if err := parse(a.flags("schema"), args); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(a.describe())
}

func (a *App) mainVersion(_ context.Context, args []string) error {
	if err := parse(a.flags("version"), args); err != nil {
		return err
	}
	_, err := fmt.Println(a.name, cmp.Or(a.describe().Build, "unknown"))
	return err
}

// replaySource selects runs of a server.
type replaySource struct {
	client           *Client
	status, workflow string
	since            time.Duration
	sample           int
}

// replayRuns is the command replay of App.Main: it replays runs of a server with the app's code, prints a table by
// workflow, and fails if one of them does not replay. Nothing is executed or written. The arguments are its flags.
func (a *App) replayRuns(ctx context.Context, args []string, out io.Writer) error {
	var s replaySource
	config := ClientFromEnv() // with a key of role read; it is no flag, since all users of a machine see flags
	f := a.flags("replay")
	f.StringVar(&config.URL, "server", config.URL, "the server's `ADDRESS`")
	f.DurationVar(&s.since, "since", 7*24*time.Hour, "replay runs that were created since then")
	f.StringVar(&s.status, "status", "running", "replay runs of this status; empty: of any")
	f.StringVar(&s.workflow, "workflow", "", "replay runs of this workflow; empty: of all that the app has")
	f.IntVar(&s.sample, "sample", 500, "replay this many runs of each workflow at most, the newest first")
	err := parse(f, args)
	if err == nil {
		err = a.check()
	}
	if err == nil {
		s.client, err = NewClient(config)
	}
	if err != nil {
		return err
	}
	a.logger = slog.New(slog.DiscardHandler)
	workflows := slices.Sorted(maps.Keys(a.workflows))
	if s.workflow != "" {
		if _, ok := a.workflows[s.workflow]; !ok { // a gate that replays nothing must not be passed
			return fmt.Errorf("app %s has no workflow %q; it has %s", a.name, s.workflow, strings.Join(workflows, ", "))
		}
		workflows = []string{s.workflow}
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "WORKFLOW\tRUNS\tREPLAY\tDO NOT")
	var failed []error
	for _, name := range workflows {
		r, err := a.replayWorkflow(ctx, s, name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", name, r.runs, r.runs-r.failures, r.failures)
		if r.first != nil {
			failed = append(failed, r.first)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// replayed is what came of replaying the runs of a workflow.
type replayed struct {
	runs, failures int
	first          error // of the first run that does not replay
}

func (a *App) replayWorkflow(ctx context.Context, s replaySource, workflow string) (r replayed, err error) {
	f := Filter{Workflow: workflow, Status: RunStatus(s.status), CreatedAfter: a.now().Add(-s.since).UTC()}
	query := f.query()
	query.Set("limit", strconv.Itoa(min(max(s.sample, 1), 100)))
	for run, err := range pages[json.RawMessage](ctx, s.client.get, api.Path("runs"), query) {
		if err != nil {
			return r, err
		}
		if r.runs >= s.sample {
			break
		}
		log, err := s.log(ctx, run)
		if err != nil {
			return r, err
		}
		r.runs++
		if err := a.Replay(ctx, log); err != nil {
			if _, ok := errors.AsType[*ReplayError](err); !ok {
				return r, err
			}
			r.failures++
			r.first = cmp.Or(r.first, err)
		}
	}
	return r, nil
}

// log reads the log of a run.
func (s replaySource) log(ctx context.Context, run json.RawMessage) (RunLog, error) {
	var r struct{ ID string }
	if err := json.Unmarshal(run, &r); err != nil {
		return RunLog{}, err
	}
	path := api.Path("runs", r.ID, "events")
	l := RunLog{Run: run}
	for event, err := range pages[json.RawMessage](ctx, s.client.get, path, url.Values{"payloads": {"true"}}) {
		if err == nil {
			event, err = s.whole(ctx, path, event)
		}
		if err != nil {
			return l, err
		}
		l.Events = append(l.Events, event)
	}
	return l, nil
}

// whole returns an event with its payload if the list has omitted that because of its size.
func (s replaySource) whole(ctx context.Context, path string, event json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil || string(fields["truncated"]) != "true" {
		return event, err
	}
	var payload json.RawMessage
	if err := s.client.get(ctx, fmt.Sprintf("%s/%s/payload", path, fields["seq"]), nil, &payload); err != nil {
		return nil, err
	}
	fields["payload"] = payload
	return json.Marshal(fields)
}
