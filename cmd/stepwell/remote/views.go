package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type viewsCmd struct {
	List   listViewsCmd  `cmd:"" help:"List the views."`
	Set    setViewCmd    `cmd:"" help:"Create or replace a view."`
	Remove removeViewCmd `cmd:"" help:"Delete a view."`
}

// view is a saved list of runs.
type view struct {
	Name, Filter, OrderBy string

	Columns   []string
	UpdatedAt time.Time
}

var viewColumns = []column[view]{
	{"NAME", func(v view) any { return v.Name }},
	{"FILTER", func(v view) any { return v.Filter }},
	{"COLUMNS", func(v view) any { return strings.Join(v.Columns, ",") }},
	{"ORDER", func(v view) any { return v.OrderBy }},
	{"UPDATED", func(v view) any { return v.UpdatedAt }},
}

type listViewsCmd struct{}

// Run lists the views.
func (listViewsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("views"), nil, viewColumns)
}

type setViewCmd struct {
	Name    string   `arg:"" help:"The view's name."`
	Filter  string   `arg:"" help:"The filter, as the dashboard shows it, such as 'status:failed created:24h'."`
	Column  []string `sep:"none" placeholder:"NAME" help:"A column, such as status or attribute.tier; may be repeated."`
	OrderBy string   `enum:"created,ended" default:"created" help:"Order by when the runs were created or ended."`
}

// Run stores the view.
func (c setViewCmd) Run(ctx context.Context, s *Session) error {
	body := jsonBody{"filter": c.Filter, "orderBy": c.OrderBy}
	if len(c.Column) > 0 {
		body["columns"] = c.Column
	}
	return s.change(ctx, http.MethodPut, path("views", c.Name), body, "set view %s", c.Name)
}

type removeViewCmd struct {
	Name string `arg:"" help:"The view's name."`
}

// Run deletes the view.
func (c removeViewCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("views", c.Name))
}

type searchCmd struct {
	Text string `arg:"" help:"An ID or its last 8 letters, a key, an attribute, a hook's token, or how a workflow begins."`
}

// hit is something that a search found.
type hit struct {
	Kind, Text, RunID, Workflow, Status, Attribute string
}

var hitColumns = []column[hit]{
	{"KIND", func(h hit) any { return h.Kind }},
	{"ATTRIBUTE", func(h hit) any { return h.Attribute }},
	{"TEXT", func(h hit) any { return h.Text }},
	{"RUN", func(h hit) any { return h.RunID }},
	{"WORKFLOW", func(h hit) any { return h.Workflow }},
	{"STATUS", func(h hit) any { return h.Status }},
}

// Run prints what the text may mean.
func (c searchCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("search"), url.Values{"q": {c.Text}}, hitColumns)
}
