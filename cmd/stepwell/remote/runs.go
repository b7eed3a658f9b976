package remote

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type runsCmd struct {
	Start      startRunCmd                 `cmd:"" at:"POST runs" help:"Start a run, and print its ID."`
	List       listRunsCmd                 `cmd:"" at:"runs?include=reason" help:"List runs, newest first."`
	Count      countRunsCmd                `cmd:"" at:"runs/count" help:"Count runs, up to 10,000."`
	Show       showRunCmd                  `cmd:"" help:"Show a run with its steps, hooks and waits."`
	Why        whyCmd                      `cmd:"" help:"Explain why a run is not done, and what helps."`
	Events     runEventsCmd                `cmd:"" at:"runs/*/events" help:"Print the log of a run."`
	Timeline   timelineCmd                 `cmd:"" at:"runs/*/timeline" help:"List the steps, hooks and waits of a run with their times."`
	Payload    payloadCmd                  `cmd:"" help:"Print the payload of an event, byte for byte."`
	Export     exportRunsCmd               `cmd:"" help:"Print runs with their logs, one per line, to replay them in tests."`
	Wait       waitRunCmd                  `cmd:"" help:"Wait until a run has ended."`
	Cancel     cancelRunsCmd               `cmd:"" help:"Cancel runs by ID, or all that match a filter."`
	Pause      changeCmd[identifiedNote]   `cmd:"" at:"PUT pauses/run/*" says:"run $1 is paused" help:"Call nothing of a run until it is resumed."`
	Resume     changeCmd[identified]       `cmd:"" at:"DELETE pauses/run/*" says:"run $1 goes on" help:"Let a paused run go on."`
	Shred      changeCmd[shreddedRun]      `cmd:"" at:"POST runs/*/shred" says:"the key of run $1 is destroyed" help:"Destroy the key of an ended run: nobody can read its payloads again."`
	Rerun      rerunCmd                    `cmd:"" help:"Start a copy of a run, or of all that match a filter."`
	Fork       forkCmd                     `cmd:"" help:"Go on from where a run failed, or all that match a filter did, in new runs."`
	Children   listCmd[runRow, identified] `cmd:"" at:"runs/*/children?include=reason" help:"List the children of a run."`
	Attributes runAttributesCmd            `cmd:"" help:"Show or change the attributes of a run."`
	Store      runStoreCmd                 `cmd:"" help:"Show the store of a run, or one of its values."`
	Send       sendMessageCmd              `cmd:"" at:"POST runs/*/inbox/*" help:"Send a message to an inbox of a run."`
}

type shreddedRun struct {
	identified
	Yes bool `field:"-" required:"" help:"That nobody can ever read them again is what you want."`
}

type runRow api.Run

// columns end with why the run is not done, or the error with which it failed.
func (r runRow) columns() []field {
	now := any(r.Reason)
	if r.Reason.Kind == "" {
		now = failureText(r.Error)
	}
	return []field{
		{"id", r.ID}, {"workflow", entities.Title(r.Workflow)}, {"status", r.Status}, {"deployment", r.Deployment},
		{"created", r.CreatedAt}, {"took", elapsed(r.StartedAt, r.CompletedAt)}, {"attributes", r.Attributes}, {"now", now},
	}
}

// runFilter are the flags that select runs.
type runFilter struct {
	Workflow      string            `placeholder:"NAME" help:"Select runs of this workflow."`
	Key           string            `placeholder:"KEY" help:"Select runs with this key."`
	Parent        string            `field:"parentId" placeholder:"ID" help:"Select children of this run."`
	Attr          map[string]string `field:"attributes" mapsep:"none" placeholder:"KEY=VALUE" help:"Select runs with this attribute; up to 8."`
	CreatedAfter  timeFlag          `placeholder:"TIME" help:"Select runs created since ${time}."`
	CreatedBefore timeFlag          `placeholder:"TIME" help:"Select runs created before this time."`
}

// runListFilter are the flags that select the runs of a list.
type runListFilter struct {
	Status []string `enum:"pending,running,completed,failed,cancelled" placeholder:"STATUS" help:"${inStatus} May be repeated."`
	runFilter
	ForkOf      string   `placeholder:"ID" help:"Select forks of this run."`
	Deployment  string   `placeholder:"ID" help:"Select runs of this deployment."`
	EndedAfter  timeFlag `placeholder:"TIME" help:"Select runs that ended since ${time}."`
	ErrorCode   string   `placeholder:"CODE" help:"Select failed runs whose error has this code."`
	EndedBefore timeFlag `placeholder:"TIME" help:"Select runs that ended before this time."`
}

// query returns the request's query, in which each attribute is a parameter.
func (f runListFilter) query(r request) url.Values {
	delete(r.params, "attributes")
	query := r.query()
	for key, value := range f.Attr {
		query.Set("attribute."+key, value)
	}
	return query
}

type listRunsCmd struct {
	runListFilter
	needFlag
	OrderBy string `enum:",created,ended,need" default:"" placeholder:"ORDER" help:"Order by created, ended or need."`
	paging
}

// needFlag selects runs that have not ended by what they need.
type needFlag struct {
	Need string `enum:",stuck,retrying,waiting" default:"" placeholder:"NEED" help:"${inNeed}"`
}

// Run lists the runs.
func (c listRunsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return list[runRow](ctx, s, r.path(), c.query(r), c.paging)
}

type countRunsCmd struct {
	runListFilter
	needFlag
}

// Run prints how many runs there are, with a plus if counting stopped.
func (c countRunsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	var count api.RunCount
	raw, err := s.client.get(ctx, r.path(), c.query(r), &count)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", countText(count.Count, count.AtLeast))
}

// timeFlag is a time as RFC 3339, or an age such as 2h or 30d.
type timeFlag string

// resolve returns the time as RFC 3339, or "" if the flag is not set.
func (f timeFlag) resolve(now time.Time) (string, error) {
	if f == "" {
		return "", nil
	}
	if _, err := time.Parse(time.RFC3339Nano, string(f)); err == nil {
		return string(f), nil
	}
	if days, ok := strings.CutSuffix(string(f), "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return timestamp(now.Add(-time.Duration(n) * 24 * time.Hour)), nil
		}
	}
	if d, err := time.ParseDuration(string(f)); err == nil && d >= 0 {
		return timestamp(now.Add(-d)), nil
	}
	return "", usageErrorf("%q is neither a time such as 2026-11-21T01:41:43Z nor an age such as 2h or 30d", string(f))
}

type showRunCmd struct {
	ID string `arg:"" help:"The run's ID."`
}

// Run prints the run and its steps, hooks and waits. With --json it prints only the run; list commands print the rest.
func (c showRunCmd) Run(ctx context.Context, s *Session) error {
	var r api.Run
	raw, err := s.client.get(ctx, path("runs", c.ID), nil, &r)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	if err := s.printRun(r); err != nil {
		return err
	}
	return errors.Join(
		printSection[stepRow](ctx, s, "steps", r.ID),
		printSection[hookRow](ctx, s, "hooks", r.ID),
		printSection[waitRow](ctx, s, "waits", r.ID),
	)
}

// printSection prints a blank line and a run's entries of one kind, or nothing if it has none.
func printSection[T row](ctx context.Context, s *Session, kind, id string) error {
	p := tablePrinter[T]{Session: s, columns: func(item T) []field {
		fields := slices.DeleteFunc(item.columns(), func(f field) bool { return f.name == "run" })
		fields[0].name = kind
		return fields
	}}
	return s.pages(ctx, path("runs", id, kind), nil, paging{All: true},
		func(entries []json.RawMessage) error {
			if len(entries) == 0 {
				return nil
			}
			if p.widths == nil {
				if _, err := s.Stdout.Write([]byte("\n")); err != nil {
					return err
				}
			}
			return p.print(entries)
		})
}

// printRun prints the run's own fields.
func (s *Session) printRun(r api.Run) error {
	return s.printFields([]field{
		{"run", r.ID},
		{"workflow", r.Workflow},
		{"status", r.Status},
		{"deployment", r.Deployment},
		{"driver", r.Driver},
		{"key", r.Key},
		{"parent", r.ParentID}, {"fork of", forkText(r.ForkOf)},
		{"root", r.RootID},
		{"continues", r.ContinuedFrom},
		{"continued as", r.ContinuedAs},
		{"attributes", r.Attributes},
		{"created", r.CreatedAt},
		{"starts", r.StartAt},
		{"started", r.StartedAt},
		{"ended", r.CompletedAt},
		{"took", elapsed(r.StartedAt, r.CompletedAt)},
		{"deadline", r.Deadline},
		{"forced at", r.ForcedAt},
		{"reason", r.CancelReason},
		{"blocked", blockedText(r.Blocked)},
		{"input", payloadText(r.Input, string(r.InputEncoding))},
		{"output", payloadText(r.Output, string(r.OutputEncoding))},
		{"error", failureText(r.Error)},
		{"details", failureDetails(r.Error)},
	})
}

type runAttributesCmd struct {
	ID     string            `arg:"" help:"The run's ID."`
	Set    map[string]string `arg:"" name:"attribute" optional:"" mapsep:"none" help:"Attributes to set, as KEY=VALUE."`
	Remove []string          `sep:"none" placeholder:"KEY" help:"Remove this attribute; may be repeated."`
}

// Run changes the named attributes, if any, and prints all attributes.
func (c runAttributesCmd) Run(ctx context.Context, s *Session) error {
	changes := map[string]any{}
	for key, value := range c.Set {
		changes[key] = value
	}
	for _, key := range c.Remove {
		changes[key] = nil
	}
	method, body := http.MethodGet, any(nil)
	if len(changes) > 0 {
		method, body = http.MethodPatch, map[string]any{"attributes": changes}
	}
	raw, err := s.client.do(ctx, method, path("runs", c.ID, "attributes"), body)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	var r api.Run
	if err := s.client.decode(raw, &r); err != nil {
		return err
	}
	var list []field
	for _, key := range slices.Sorted(maps.Keys(r.Attributes)) {
		list = append(list, field{escape(key), r.Attributes[key]})
	}
	return s.printFields(list)
}

type runStoreCmd struct {
	ID  string `arg:"" help:"The run's ID."`
	Key string `arg:"" optional:"" help:"Show the value of this key only."`
}

// Run prints the store by key, or the JSON of one value.
func (c runStoreCmd) Run(ctx context.Context, s *Session) error {
	if c.Key != "" {
		var value api.StoreValue
		raw, err := s.client.get(ctx, path("runs", c.ID, "store", c.Key), nil, &value)
		if err != nil {
			return err
		}
		return s.printResult(raw, "%s", value.Value)
	}
	var values api.RunStore
	raw, err := s.client.get(ctx, path("runs", c.ID, "store"), nil, &values)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	var list []field
	for _, key := range slices.Sorted(maps.Keys(values.Data)) {
		list = append(list, field{escape(key), string(values.Data[key].Value)})
	}
	return s.printFields(list)
}

type cancelRunsCmd struct {
	IDs    []string `arg:"" optional:"" name:"id" help:"The runs' IDs, unless flags select the runs."`
	Status string   `enum:",pending,running" default:"" placeholder:"STATUS" help:"Select pending or running runs."`
	runFilter
	Limit  int    `placeholder:"N" help:"Cancel at most this many runs; up to 1000."`
	DryRun bool   `help:"Only print the runs that would be cancelled."`
	Reason string `placeholder:"TEXT" help:"The reason, stored with the runs."`
	Grace  string `placeholder:"TIME" help:"Let the runs end by themselves within this time, such as 1m."`
}

// Run cancels the runs with the IDs, or those that the flags select.
func (c cancelRunsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	filter := r.take(filterFields...)
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either IDs of runs, or flags that select runs")
	case len(c.IDs) == 0 && c.Grace != "":
		return usageErrorf("--grace needs IDs of runs")
	case len(c.IDs) > 0:
		return forEach(c.IDs, func(id string) error { return cancelRun(ctx, s, id, r.params) })
	case len(filter) == 0:
		return usageErrorf("give IDs of runs, or flags that select runs, such as --workflow; preview them with --dry-run")
	}
	maps.Copy(r.params, filter)
	return s.changeMatching(ctx, path("runs", "cancel"), r.params, func(result bulkResult) error {
		if c.DryRun {
			return s.printResult(nil, "would cancel %d", result.Matched)
		}
		return s.printResult(nil, "cancelled %d", result.Cancelled)
	})
}

func cancelRun(ctx context.Context, s *Session, id string, body jsonBody) error {
	var r api.Run
	raw, err := s.client.call(ctx, http.MethodPost, path("runs", id, "cancel"), body, &r)
	if err != nil {
		return err
	}
	if r.CompletedAt.IsZero() {
		return s.printResult(raw, "asked %s to cancel; it is ended at %s", id, timestamp(r.ForcedAt.Time))
	}
	return s.printResult(raw, "cancelled %s", id)
}

// filterFields are the fields of requests that select runs.
var filterFields = []string{
	"workflow", "status", "key", "parentId", "attributes", "createdAfter", "createdBefore", "errorCode",
}

// take removes parameters, and returns them.
func (r request) take(names ...string) jsonBody {
	taken := jsonBody{}
	for _, name := range names {
		if value, ok := r.params[name]; ok {
			taken[name] = value
			delete(r.params, name)
		}
	}
	return taken
}

// bulkResult is the answer to a request that copies or cancels all matching runs. Only copies have a cursor: a run that
// was cancelled no longer matches.
type bulkResult struct {
	api.CopiedRuns

	Cancelled int64 `json:"cancelled"`
}

// changeMatching sends the request until no more runs match. With a limit or as a dry run it sends it once.
func (s *Session) changeMatching(ctx context.Context, path string, body jsonBody, report func(bulkResult) error) error {
	for {
		var result bulkResult
		raw, err := s.client.call(ctx, http.MethodPost, path, body.omitZero(), &result)
		if err != nil {
			return err
		}
		if s.json {
			err = s.printJSON(raw)
		} else {
			err = errors.Join(s.printIDs(result.RunIds, result.Matched), report(result))
		}
		if err != nil || !result.More || result.Matched == 0 && result.Cursor == "" {
			return err
		}
		if body["dryRun"] != nil || body["limit"] != nil {
			s.note("more runs match")
			return nil
		}
		body["cursor"] = result.Cursor
	}
}

// printIDs prints the first IDs of runs, and how many more there are.
func (s *Session) printIDs(ids []string, all int64) error {
	for _, id := range ids {
		if err := s.printResult(nil, "%s", id); err != nil {
			return err
		}
	}
	if more := all - int64(len(ids)); more > 0 {
		return s.printResult(nil, "… and %d more", more)
	}
	return nil
}

type rerunCmd struct {
	ID     string `arg:"" optional:"" help:"The ID of the run to copy, unless flags select the runs."`
	Status string `enum:",completed,failed,cancelled" default:"" placeholder:"STATUS" help:"${ended}"`
	runFilter
	ErrorCode      string `placeholder:"CODE" help:"Select failed runs whose error has this code."`
	Deployment     string `short:"d" placeholder:"ID" help:"Another deployment, or latest."`
	IdempotencyKey string `placeholder:"KEY" help:"Makes the command idempotent: repeats start no second copy of a run."`
	Limit          int    `placeholder:"N" help:"Copy at most this many runs; up to 1000."`
	DryRun         bool   `help:"Only print the runs that would be copied."`
	waitFlags
}

// Run starts a copy of the run with the ID, or of those that the flags select.
func (c rerunCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	return c.copy(ctx, k, s, jsonBody{})
}

// copy starts copies that go on from a place, which says the fields of the request.
func (c rerunCmd) copy(ctx context.Context, k *kong.Context, s *Session, place jsonBody) error {
	r, err := s.request(k)
	filter := r.take(filterFields...)
	switch {
	case err != nil:
		return err
	case c.ID != "" && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either the ID of a run, or flags that select runs")
	case c.ID != "":
		maps.Copy(r.params, place)
		return c.start(ctx, s, path("runs", c.ID, "rerun"), r.params)
	case len(filter) == 0:
		return usageErrorf("give the ID of a run, or flags that select runs, such as --error-code; --dry-run shows them")
	case c.Wait || c.WaitTimeout != 0:
		return usageErrorf("--wait needs the ID of a run")
	case c.IdempotencyKey == "" && !c.DryRun:
		return usageErrorf("--idempotency-key is missing: without one, a repeated command starts runs twice")
	}
	maps.Copy(r.params, place)
	r.params["filter"] = filter
	return s.changeMatching(ctx, path("runs", "rerun"), r.params, func(result bulkResult) error {
		for _, r := range result.Refused {
			s.note("%s: %s", r.RunID, r.Message)
		}
		if again := againText(result.OpenSteps, result.OpenChildren); again != "" {
			s.note("%s", again)
		}
		if c.DryRun {
			return s.printResult(nil, "would copy %d", result.Matched)
		}
		return s.printResult(nil, "copied %d", result.Started)
	})
}
