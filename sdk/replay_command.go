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
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

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
