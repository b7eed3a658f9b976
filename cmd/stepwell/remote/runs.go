package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type runsCmd struct {
	Start      startRunCmd      `cmd:"" help:"Start a run, and print its ID."`
	List       listRunsCmd      `cmd:"" help:"List runs, the newest first."`
	Show       showRunCmd       `cmd:"" help:"Show a run with its steps, hooks and waits."`
	Events     runEventsCmd     `cmd:"" help:"Print the log of a run."`
	Payload    payloadCmd       `cmd:"" help:"Print the payload of an event, byte for byte."`
	Wait       waitRunCmd       `cmd:"" help:"Wait for the end of a run."`
	Cancel     cancelRunsCmd    `cmd:"" help:"Cancel runs, by their IDs or all that match."`
	Rerun      rerunCmd         `cmd:"" help:"Start a run like another one, and print its ID."`
	Children   childrenCmd      `cmd:"" help:"List the runs that a run started."`
	Attributes runAttributesCmd `cmd:"" help:"Show the attributes of a run, or change them."`
}

var runColumns = []column[run]{
	{"ID", func(_ *Session, r run) string { return r.ID }},
	{"WORKFLOW", func(_ *Session, r run) string { return r.Workflow }},
	{"STATUS", func(_ *Session, r run) string { return r.Status }},
	{"DEPLOYMENT", func(_ *Session, r run) string { return r.Deployment }},
	{"CREATED", func(s *Session, r run) string { return s.when(r.CreatedAt) }},
	{"TOOK", func(_ *Session, r run) string { return took(r.StartedAt, r.CompletedAt) }},
	{"ATTRIBUTES", func(_ *Session, r run) string { return pairs(r.Attributes) }},
	{"ERROR", func(_ *Session, r run) string { return r.Error.String() }},
}

// runFilter is which runs are meant.
type runFilter struct {
	Workflow      string            `placeholder:"NAME" help:"Those of this workflow."`
	Key           string            `placeholder:"KEY" help:"Those that have this key."`
	Parent        string            `placeholder:"ID" help:"Those that this run started."`
	Attr          map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Those that have this attribute; up to 8."`
	CreatedAfter  moment            `placeholder:"TIME" help:"Those since then: RFC 3339, or an age such as 2h."`
	CreatedBefore moment            `placeholder:"TIME" help:"Those before then."`
}

type listRunsCmd struct {
	Status string `enum:"${statuses}" default:"" placeholder:"STATUS" help:"${inStatus}"`
	runFilter
	paging
	ordering
}

// Run lists the runs.
func (c listRunsCmd) Run(ctx context.Context, s *Session) error {
	after, err := c.CreatedAfter.of(s.Now())
	if err != nil {
		return err
	}
	before, err := c.CreatedBefore.of(s.Now())
	if err != nil {
		return err
	}
	query := url.Values{}
	set(query, "workflow", c.Workflow)
	set(query, "status", c.Status)
	set(query, "key", c.Key)
	set(query, "parentId", c.Parent)
	set(query, "createdAfter", after)
	set(query, "createdBefore", before)
	for key, value := range c.Attr {
		query.Set("attribute."+key, value)
	}
	c.into(query)
	return list(ctx, s, path("runs"), query, c.paging, runColumns)
}

type childrenCmd struct {
	ID string `arg:"" help:"The run's ID."`
	paging
	ordering
}

// Run lists the run's children.
func (c childrenCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	c.into(query)
	return list(ctx, s, path("runs", c.ID, "children"), query, c.paging, runColumns)
}

// moment is a time as users give it: RFC 3339 or an age.
type moment string

// of is the time in RFC 3339; empty when none was given.
func (m moment) of(now time.Time) (string, error) {
	if m == "" {
		return "", nil
	}
	if _, err := time.Parse(time.RFC3339Nano, string(m)); err == nil {
		return string(m), nil
	}
	if d, err := time.ParseDuration(string(m)); err == nil && d >= 0 {
		return stamp(now.Add(-d)), nil
	}
	return "", usage("%q is neither a time such as 2026-11-21T01:41:43Z nor an age such as 2h", string(m))
}

type showRunCmd struct {
	ID string `arg:"" help:"The run's ID."`
}

// Run prints the run; as JSON without what has lists of its own.
func (c showRunCmd) Run(ctx context.Context, s *Session) error {
	var r run
	raw, err := s.client.get(ctx, path("runs", c.ID), nil, &r)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	if err := s.showRun(r); err != nil {
		return err
	}
	return errors.Join(
		part(ctx, s, "steps", r.ID, stepColumns),
		part(ctx, s, "hooks", r.ID, hookColumns),
		part(ctx, s, "waits", r.ID, waitColumns),
	)
}

// part prints what a run has of one kind, below a blank line, if it has any.
func part[T any](ctx context.Context, s *Session, kind, id string, columns []column[T]) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.head == "RUN" })
	columns[0].head = strings.ToUpper(kind)
	p := printer[T]{Session: s, columns: columns}
	return s.pages(ctx, path("runs", id, kind), url.Values{}, paging{All: true},
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

// showRun prints the run's own fields.
func (s *Session) showRun(r run) error {
	var details string
	if r.Error != nil {
		details = value(r.Error.Details, "")
	}
	return s.fields([]field{
		{"run", r.ID},
		{"workflow", clean(r.Workflow)},
		{"status", r.Status},
		{"deployment", clean(r.Deployment)},
		{"driver", r.Driver},
		{"key", clean(r.Key)},
		{"parent", r.ParentID},
		{"attributes", clean(pairs(r.Attributes))},
		{"created", s.exactly(r.CreatedAt)},
		{"starts", s.exactly(r.StartAt)},
		{"started", s.exactly(r.StartedAt)},
		{"ended", s.exactly(r.CompletedAt)},
		{"took", took(r.StartedAt, r.CompletedAt)},
		{"deadline", s.exactly(r.Deadline)},
		{"reason", clean(r.CancelReason)},
		{"input", value(r.Input, r.InputEncoding)},
		{"output", value(r.Output, r.OutputEncoding)},
		{"error", clean(r.Error.String())},
		{"details", details},
	})
}

// exactly shows a time and, to people at a terminal, its distance from now.
func (s *Session) exactly(t time.Time) string {
	if t.IsZero() || !s.Ages {
		return s.when(t)
	}
	return stamp(t) + " (" + s.when(t) + ")"
}

type runAttributesCmd struct {
	ID     string            `arg:"" help:"The run's ID."`
	Set    map[string]string `arg:"" name:"attribute" optional:"" mapsep:"none" help:"Attributes to set, as KEY=VALUE."`
	Remove []string          `sep:"none" placeholder:"KEY" help:"Remove this attribute."`
}

// Run prints the attributes, after it has changed those that are named.
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
	var answer struct{ Attributes map[string]string }
	if err := s.client.decode(raw, &answer); err != nil {
		return err
	}
	var list []field
	for _, key := range sortedKeys(answer.Attributes) {
		list = append(list, field{clean(key), clean(answer.Attributes[key])})
	}
	return s.fields(list)
}
