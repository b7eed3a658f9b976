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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type runsCmd struct {
	Start      startRunCmd      `cmd:"" help:"Start a run, and print its ID."`
	List       listRunsCmd      `cmd:"" help:"List runs, newest first."`
	Count      countRunsCmd     `cmd:"" help:"Count runs, up to 10,000."`
	Show       showRunCmd       `cmd:"" help:"Show a run with its steps, hooks and waits."`
	Why        whyCmd           `cmd:"" help:"Explain why a run is not done, and what helps."`
	Events     runEventsCmd     `cmd:"" help:"Print the log of a run."`
	Timeline   timelineCmd      `cmd:"" help:"List the steps, hooks and waits of a run with their times."`
	Payload    payloadCmd       `cmd:"" help:"Print the payload of an event, byte for byte."`
	Export     exportRunsCmd    `cmd:"" help:"Print runs with their logs, one per line, to replay them in tests."`
	Wait       waitRunCmd       `cmd:"" help:"Wait until a run has ended."`
	Cancel     cancelRunsCmd    `cmd:"" help:"Cancel runs by ID, or all that match a filter."`
	Pause      pauseRunCmd      `cmd:"" help:"Call nothing of a run until it is resumed."`
	Resume     resumeRunCmd     `cmd:"" help:"Let a paused run go on."`
	Rerun      rerunCmd         `cmd:"" help:"Start a copy of a run, or of all that match a filter."`
	Fork       forkCmd          `cmd:"" help:"Go on from where a run failed, or all that match a filter did, in new runs."`
	Children   childrenCmd      `cmd:"" help:"List the children of a run."`
	Attributes runAttributesCmd `cmd:"" help:"Show or change the attributes of a run."`
	Store      runStoreCmd      `cmd:"" help:"Show the store of a run, or one of its values."`
	Send       sendMessageCmd   `cmd:"" help:"Send a message to an inbox of a run."`
}

var runColumns = []column[api.Run]{
	{"ID", func(r api.Run) any { return r.ID }},
	{"WORKFLOW", func(r api.Run) any { return entities.Title(r.Workflow) }},
	{"STATUS", func(r api.Run) any { return r.Status }},
	{"DEPLOYMENT", func(r api.Run) any { return r.Deployment }},
	{"CREATED", func(r api.Run) any { return r.CreatedAt }},
	{"TOOK", func(r api.Run) any { return elapsed(r.StartedAt, r.CompletedAt) }},
	{"ATTRIBUTES", func(r api.Run) any { return keyValues(r.Attributes) }},
	{"NOW", runNow},
}

// runNow returns why the run is not done, or the error with which it failed.
func runNow(r api.Run) any {
	if r.Reason.Kind != "" {
		return r.Reason
	}
	return failureText(r.Error)
}

// runFilter are the flags that select runs.
type runFilter struct {
	Workflow string `placeholder:"NAME" help:"Select runs of this workflow."`
	Key      string `placeholder:"KEY" help:"Select runs with this key."`
	Parent   string `placeholder:"ID" help:"Select children of this run."`
	//nolint:lll // a tag cannot be broken
	Attr          map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Select runs with this attribute; up to 8."`
	CreatedAfter  timeFlag          `placeholder:"TIME" help:"Select runs created since ${time}."`
	CreatedBefore timeFlag          `placeholder:"TIME" help:"Select runs created before this time."`
}

// runListFilter are the flags that select the runs of a list.
type runListFilter struct {
	//nolint:lll // a tag cannot be broken
	Status []string `enum:"pending,running,completed,failed,cancelled" placeholder:"STATUS" help:"${inStatus} May be repeated."`
	runFilter
	ForkOf      string   `placeholder:"ID" help:"Select forks of this run."`
	Deployment  string   `placeholder:"ID" help:"Select runs of this deployment."`
	EndedAfter  timeFlag `placeholder:"TIME" help:"Select runs that ended since ${time}."`
	ErrorCode   string   `placeholder:"CODE" help:"Select failed runs whose error has this code."`
	EndedBefore timeFlag `placeholder:"TIME" help:"Select runs that ended before this time."`
}

func (f runListFilter) query(s *Session) (url.Values, error) {
	query := url.Values{
		"workflow": {f.Workflow}, "deployment": {f.Deployment}, "key": {f.Key}, "errorCode": {f.ErrorCode},
		"parentId": {f.Parent}, "forkOf": {f.ForkOf}, "status": f.Status,
	}
	for name, flags := range map[string][2]timeFlag{
		"created": {f.CreatedAfter, f.CreatedBefore}, "ended": {f.EndedAfter, f.EndedBefore},
	} {
		after, before, err := interval(s, flags[0], flags[1])
		if err != nil {
			return nil, err
		}
		query[name+"After"], query[name+"Before"] = []string{after}, []string{before}
	}
	nonEmpty(query) // an attribute may be empty
	for key, value := range f.Attr {
		query.Set("attribute."+key, value)
	}
	return query, nil
}

// needFlag selects runs that have not ended by what they need.
type needFlag struct {
	Need string `enum:",stuck,retrying,waiting" default:"" placeholder:"NEED" help:"${inNeed}"`
}

type listRunsCmd struct {
	runListFilter
	needFlag
	OrderBy string `enum:",created,ended,need" default:"" placeholder:"ORDER" help:"Order by created, ended or need."`
	paging
}

// Run lists the runs.
func (c listRunsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"need": c.Need, "orderBy": c.OrderBy, "include": "reason"} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return list(ctx, s, path("runs"), query, c.paging, runColumns)
}

type countRunsCmd struct {
	runListFilter
	needFlag
}

// Run prints how many runs there are, with a plus if counting stopped.
func (c countRunsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	if c.Need != "" {
		query.Set("need", c.Need)
	}
	var count api.RunCount
	raw, err := s.client.get(ctx, path("runs", "count"), query, &count)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", countText(count.Count, count.AtLeast))
}

type childrenCmd struct {
	ID string `arg:"" help:"The run's ID."`
	paging
}

// Run lists the run's children.
func (c childrenCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("runs", c.ID, "children"), url.Values{"include": {"reason"}}, c.paging, runColumns)
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

// interval resolves the flags for the start and the end of an interval.
func interval(s *Session, from, to timeFlag) (start, end string, err error) {
	now := s.Now()
	if start, err = from.resolve(now); err != nil {
		return "", "", err
	}
	end, err = to.resolve(now)
	return start, end, err
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
		printSection(ctx, s, "steps", r.ID, stepColumns),
		printSection(ctx, s, "hooks", r.ID, hookColumns),
		printSection(ctx, s, "waits", r.ID, waitColumns),
	)
}

// printSection prints a blank line and a run's entries of one kind, or nothing if it has none.
func printSection[T any](ctx context.Context, s *Session, kind, id string, columns []column[T]) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.head == "RUN" })
	columns[0].head = strings.ToUpper(kind)
	p := tablePrinter[T]{Session: s, columns: columns}
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
		{"attributes", keyValues(r.Attributes)},
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
func (c cancelRunsCmd) Run(ctx context.Context, s *Session) error {
	filter, err := c.conditions(s, c.Status)
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either IDs of runs, or flags that select runs")
	case len(c.IDs) == 0 && c.Grace != "":
		return usageErrorf("--grace needs IDs of runs")
	case len(c.IDs) > 0:
		return forEach(c.IDs, func(id string) error { return c.cancel(ctx, s, id) })
	case len(filter) == 0:
		return usageErrorf("give IDs of runs, or flags that select runs, such as --workflow; preview them with --dry-run")
	default:
		filter["reason"], filter["dryRun"], filter["limit"] = c.Reason, c.DryRun, c.Limit
		return s.changeMatching(ctx, path("runs", "cancel"), filter, func(result bulkResult) error {
			if c.DryRun {
				return s.printResult(nil, "would cancel %d", result.Matched)
			}
			return s.printResult(nil, "cancelled %d", result.Cancelled)
		})
	}
}

func (c cancelRunsCmd) cancel(ctx context.Context, s *Session, id string) error {
	var r api.Run
	raw, err := s.client.call(ctx, http.MethodPost, path("runs", id, "cancel"),
		jsonBody{"reason": c.Reason, "grace": c.Grace}.omitZero(), &r)
	if err != nil {
		return err
	}
	if r.CompletedAt.IsZero() {
		return s.printResult(raw, "asked %s to cancel; it is ended at %s", id, timestamp(r.ForcedAt.Time))
	}
	return s.printResult(raw, "cancelled %s", id)
}

// conditions returns the conditions of the flags as JSON, which may be empty.
func (f runFilter) conditions(s *Session, status string) (jsonBody, error) {
	after, before, err := interval(s, f.CreatedAfter, f.CreatedBefore)
	if err != nil {
		return nil, err
	}
	return jsonBody{
		"workflow": f.Workflow, "status": status, "key": f.Key, "parentId": f.Parent, "attributes": f.Attr,
		"createdAfter": after, "createdBefore": before,
	}.omitZero(), nil
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
func (c rerunCmd) Run(ctx context.Context, s *Session) error { return c.copy(ctx, s, jsonBody{}) }

// copy starts copies that go on from a place, which says the fields of the request.
func (c rerunCmd) copy(ctx context.Context, s *Session, place jsonBody) error {
	filter, err := c.conditions(s, c.Status)
	if err != nil {
		return err
	}
	if c.ErrorCode != "" {
		filter["errorCode"] = c.ErrorCode
	}
	switch {
	case c.ID != "" && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either the ID of a run, or flags that select runs")
	case c.ID != "":
		maps.Copy(place, jsonBody{"deployment": c.Deployment, "idempotencyKey": c.IdempotencyKey}.omitZero())
		return c.start(ctx, s, path("runs", c.ID, "rerun"), place)
	case len(filter) == 0:
		return usageErrorf("give the ID of a run, or flags that select runs, such as --error-code; --dry-run shows them")
	case c.Wait || c.WaitTimeout != 0:
		return usageErrorf("--wait needs the ID of a run")
	case c.IdempotencyKey == "" && !c.DryRun:
		return usageErrorf("--idempotency-key is missing: without one, a repeated command starts runs twice")
	default:
		maps.Copy(place, jsonBody{
			"filter": filter, "deployment": c.Deployment, "idempotencyKey": c.IdempotencyKey,
			"dryRun": c.DryRun, "limit": c.Limit,
		})
		return s.changeMatching(ctx, path("runs", "rerun"), place, func(result bulkResult) error {
			for _, r := range result.Refused {
				s.note("%s: %s", r.RunID, r.Message)
			}
			if c.DryRun {
				return s.printResult(nil, "would copy %d", result.Matched)
			}
			return s.printResult(nil, "copied %d", result.Started)
		})
	}
}
