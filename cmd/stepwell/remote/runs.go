package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
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
	Rerun      rerunCmd         `cmd:"" help:"Start a copy of a run, or of all that match a filter."`
	Children   childrenCmd      `cmd:"" help:"List the children of a run."`
	Attributes runAttributesCmd `cmd:"" help:"Show or change the attributes of a run."`
	Store      runStoreCmd      `cmd:"" help:"Show the store of a run, or one of its values."`
	Send       sendMessageCmd   `cmd:"" help:"Send a message to an inbox of a run."`
}

var runColumns = []column[run]{
	{"ID", func(r run) any { return r.ID }},
	{"WORKFLOW", func(r run) any { return r.Workflow }},
	{"STATUS", func(r run) any { return r.Status }},
	{"DEPLOYMENT", func(r run) any { return r.Deployment }},
	{"CREATED", func(r run) any { return r.CreatedAt }},
	{"TOOK", func(r run) any { return elapsed(r.StartedAt, r.CompletedAt) }},
	{"ATTRIBUTES", func(r run) any { return keyValues(r.Attributes) }},
	{"ERROR", func(r run) any { return cmp.Or(r.Error.String(), r.Held.code()) }},
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
	Deployment  string   `placeholder:"ID" help:"Select runs of this deployment."`
	EndedAfter  timeFlag `placeholder:"TIME" help:"Select runs that ended since ${time}."`
	ErrorCode   string   `placeholder:"CODE" help:"Select failed runs whose error has this code."`
	EndedBefore timeFlag `placeholder:"TIME" help:"Select runs that ended before this time."`
}

func (f runListFilter) query(s *Session) (url.Values, error) {
	query := url.Values{
		"workflow": {f.Workflow}, "deployment": {f.Deployment}, "key": {f.Key}, "errorCode": {f.ErrorCode},
		"parentId": {f.Parent}, "status": f.Status,
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

type listRunsCmd struct {
	runListFilter
	OrderBy string `enum:",created,ended" default:"" placeholder:"ORDER" help:"Order by created (default) or ended."`
	paging
}

// Run lists the runs.
func (c listRunsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	if c.OrderBy != "" {
		query.Set("orderBy", c.OrderBy)
	}
	return list(ctx, s, path("runs"), query, c.paging, runColumns)
}

type countRunsCmd struct{ runListFilter }

// Run prints how many runs there are, with a plus if counting stopped.
func (c countRunsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	var count struct {
		Count   int64
		AtLeast bool
	}
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
	return list(ctx, s, path("runs", c.ID, "children"), nil, c.paging, runColumns)
}

// timeFlag is a time as RFC 3339, or an age such as 2h.
type timeFlag string

// resolve returns the time as RFC 3339, or "" if the flag is not set.
func (f timeFlag) resolve(now time.Time) (string, error) {
	if f == "" {
		return "", nil
	}
	if _, err := time.Parse(time.RFC3339Nano, string(f)); err == nil {
		return string(f), nil
	}
	if d, err := time.ParseDuration(string(f)); err == nil && d >= 0 {
		return timestamp(now.Add(-d)), nil
	}
	return "", usageErrorf("%q is neither a time such as 2026-11-21T01:41:43Z nor an age such as 2h", string(f))
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
	var r run
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
func (s *Session) printRun(r run) error {
	return s.printFields([]field{
		{"run", r.ID},
		{"workflow", r.Workflow},
		{"status", r.Status},
		{"deployment", r.Deployment},
		{"driver", r.Driver},
		{"key", r.Key},
		{"parent", r.ParentID},
		{"attributes", keyValues(r.Attributes)},
		{"created", r.CreatedAt},
		{"starts", r.StartAt},
		{"started", r.StartedAt},
		{"ended", r.CompletedAt},
		{"took", elapsed(r.StartedAt, r.CompletedAt)},
		{"deadline", r.Deadline},
		{"forced at", r.ForcedAt},
		{"reason", r.CancelReason},
		{"held", r.Held.text()},
		{"input", payloadText(r.Input, r.InputEncoding)},
		{"output", payloadText(r.Output, r.OutputEncoding)},
		{"error", r.Error.String()},
		{"details", r.Error.details()},
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
	var r run
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
		var value struct{ Value json.RawMessage }
		raw, err := s.client.get(ctx, path("runs", c.ID, "store", c.Key), nil, &value)
		if err != nil {
			return err
		}
		return s.printResult(raw, "%s", value.Value)
	}
	var values struct {
		Data map[string]struct{ Value json.RawMessage }
	}
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
