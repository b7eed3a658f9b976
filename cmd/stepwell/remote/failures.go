package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// failureGroup are failed runs that are alike.
type failureGroup struct {
	Workflow, Step, Code, Shape string
	Count                       int
	FirstAt, LastAt             time.Time
	RunID                       string
}

var failureColumns = []column[failureGroup]{
	{"WORKFLOW", func(g failureGroup) any { return g.Workflow }},
	{"STEP", func(g failureGroup) any { return g.Step }},
	{"CODE", func(g failureGroup) any { return g.Code }},
	{"COUNT", func(g failureGroup) any { return g.Count }},
	{"FIRST", func(g failureGroup) any { return g.FirstAt }},
	{"LAST", func(g failureGroup) any { return g.LastAt }},
	{"EXAMPLE", func(g failureGroup) any { return g.RunID }},
	{"MESSAGE", func(g failureGroup) any { return cmp.Or(g.Shape, "-") }},
}

type failuresCmd struct {
	Window string `placeholder:"TIME" help:"How far back, such as 1h; default is 24h."`
}

// Run lists the groups, the one that failed last first.
func (c failuresCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	setParam(query, "window", c.Window)
	var answer struct {
		More bool
		Data []json.RawMessage
	}
	raw, err := s.client.get(ctx, path("failures"), query, &answer)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	if answer.More {
		s.note("only the last 1,000 failed runs are counted")
	}
	out := tablePrinter[failureGroup]{Session: s, columns: failureColumns}
	return out.print(answer.Data)
}

// workflow is a workflow that has runs.
type workflow struct {
	Name, Deployment string
	LastRunAt        time.Time
	Open             int
	MoreOpen         bool
}

var workflowColumns = []column[workflow]{
	{"WORKFLOW", func(w workflow) any { return w.Name }},
	{"DEPLOYMENT", func(w workflow) any { return w.Deployment }},
	{"LAST RUN", func(w workflow) any { return w.LastRunAt }},
	{"OPEN", func(w workflow) any {
		if w.MoreOpen {
			return strconv.Itoa(w.Open) + "+"
		}
		return w.Open
	}},
}

type workflowsCmd struct {
	Limit  int    `placeholder:"N" help:"List at most this many entries; default 100."`
	All    bool   `help:"List all entries."`
	Cursor string `placeholder:"CURSOR" help:"Continue an earlier list at its cursor."`
}

// Run lists the workflows by name.
func (c workflowsCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("workflows"), nil, paging{Limit: c.Limit, All: c.All, Cursor: c.Cursor}, workflowColumns)
}
