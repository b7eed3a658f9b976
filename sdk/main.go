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
)

// command is a subcommand of [App.Main].
type command struct {
	help string
	run  func(ctx context.Context, args []string) error
}

// Command adds a subcommand to [App.Main]. It gets the arguments after its name.
func (a *App) Command(name, help string, run func(ctx context.Context, args []string) error) {
	if a.commands == nil {
		a.commands = map[string]command{}
	}
	a.commands[name] = command{help, run}
}

// Main is the program of an app. It carries out one of the commands serve, replay, schema and version, and those that
// [App.Command] adds:
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
		"serve":   {"serve the app", a.mainServe},
		"replay":  {"replay runs of a server with this code", a.mainReplay},
		"schema":  {"print the workflows with the schemas of their inputs and outputs", a.mainSchema},
		"version": {"print the build", a.mainVersion},
	}
	maps.Copy(commands, a.commands)
	if len(args) > 0 {
		if c, ok := commands[args[0]]; ok {
			return c.run(ctx, args[1:])
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&b, "\n  %-10s %s", name, commands[name].help)
	}
	return fmt.Errorf("%s needs one of these commands:%s", a.name, b.String())
}

// flags returns the flags of a command, which are parsed by [parse].
func (a *App) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(a.name+" "+name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parse parses the arguments of a command that has only flags. The error explains how to use it.
func parse(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
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
		return err
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
	keys := cmp.Or(a.signingKeys, os.Getenv("STEPWELL_SIGNING_KEYS"))
	switch {
	case unsigned != "":
		return a.Handler(SigningKeys(""), Unsigned(unsigned))
	case keys == "":
		return nil, errors.New("there are no signing keys: set STEPWELL_SIGNING_KEYS to one that stepwell signing-keys " +
			"create prints, or accept calls from everybody with -unsigned REASON")
	default:
		return a.Handler(SigningKeys(keys))
	}
}

func (a *App) announceFromEnv(ctx context.Context, url string) error {
	c, err := Connect(ClientFromEnv())
	if err != nil {
		return err
	}
	return a.Announce(ctx, c, url)
}

// stop closes the listener at once, so that the server finds another process. It waits for calls as [App.Shutdown] does.
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
	server, key      string
	status, workflow string
	since            time.Duration
	sample           int
}

// mainReplay is the command replay of App.Main.
func (a *App) mainReplay(ctx context.Context, args []string) error {
	return a.replayRuns(ctx, args, os.Stdout)
}

// replayRuns replays runs of a server with the app's code, prints a table by
// workflow, and fails if one of them does not replay. Nothing is executed or written. The arguments are its flags.
func (a *App) replayRuns(ctx context.Context, args []string, out io.Writer) error {
	var s replaySource
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&s.server, "server", cmp.Or(os.Getenv("STEPWELL_URL"), "http://127.0.0.1:8788"), "address of the server")
	flags.DurationVar(&s.since, "since", 7*24*time.Hour, "replay runs that were created since then")
	flags.StringVar(&s.status, "status", "running", "replay runs of this status; empty: of any")
	flags.StringVar(&s.workflow, "workflow", "", "replay runs of this workflow; empty: of all that the app has")
	flags.IntVar(&s.sample, "sample", 500, "replay this many runs of each workflow at most, the newest first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s.key = os.Getenv("STEPWELL_API_KEY") // of role read; not a flag, since all users of a machine see flags
	if err := a.check(); err != nil {
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
	query := url.Values{
		"workflow": {workflow}, "createdAfter": {time.Now().Add(-s.since).UTC().Format(time.RFC3339)},
	}
	if s.status != "" {
		query.Set("status", s.status)
	}
	for run, err := range s.list(ctx, "/v1/runs", query, s.sample) {
		if err != nil {
			return r, err
		}
		log, err := s.log(ctx, run)
		if err != nil {
			return r, err
		}
		r.runs++
		err = a.Replay(ctx, log)
		if e := (*ReplayError)(nil); err != nil && !errors.As(err, &e) {
			return r, err
		}
		if err != nil {
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
	path := "/v1/runs/" + url.PathEscape(r.ID) + "/events"
	l := RunLog{Run: run}
	for event, err := range s.list(ctx, path, url.Values{"payloads": {"true"}}, 1<<30) {
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
	var e struct {
		Seq       int64
		Truncated bool
	}
	if err := json.Unmarshal(event, &e); err != nil || !e.Truncated {
		return event, err
	}
	payload, err := s.get(ctx, path+"/"+strconv.FormatInt(e.Seq, 10)+"/payload", nil)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil {
		return nil, err
	}
	fields["payload"] = payload
	return json.Marshal(fields)
}

// list yields up to n entries of a list.
func (s replaySource) list(
	ctx context.Context, path string, query url.Values, n int,
) func(yield func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		for {
			query.Set("limit", strconv.Itoa(min(n, 100)))
			var page struct {
				Data   []json.RawMessage
				Cursor string
			}
			data, err := s.get(ctx, path, query)
			if err == nil {
				err = json.Unmarshal(data, &page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, entry := range page.Data {
				if !yield(entry, nil) {
					return
				}
			}
			if n -= len(page.Data); page.Cursor == "" || n <= 0 {
				return
			}
			query.Set("cursor", page.Cursor)
		}
	}
}

func (s replaySource) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, resp.StatusCode, data)
	}
	return data, err
}
