package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type statsCmd struct {
	Now      showCmd[gaugesRow, none] `cmd:"" at:"stats/now" help:"Count the open runs and the queue."`
	Runs     runStatsCmd              `cmd:"" help:"Count runs in intervals of time."`
	Steps    stepStatsCmd             `cmd:"" help:"Count steps by their name."`
	Failures failureStatsCmd          `cmd:"" help:"Count failed runs by the code of their error."`
}

// statsWindow are the flags of statistics.
type statsWindow struct {
	From     timeFlag `placeholder:"TIME" help:"Count from this time on: ${time}; default is an hour before --to."`
	To       timeFlag `placeholder:"TIME" help:"Count up to this time: ${time}; default is now."`
	Workflow string   `placeholder:"NAME" help:"Count only this workflow."`
}

func (w statsWindow) query(s *Session) (url.Values, error) {
	from, to, err := interval(s, w.From, w.To)
	if err != nil {
		return nil, err
	}
	return nonEmpty(url.Values{"from": {from}, "to": {to}, "workflow": {w.Workflow}}), nil
}

// tookFields are the percentiles of how long something took.
func tookFields(p *api.Percentiles) []field {
	if p == nil {
		return []field{{"p50", ""}, {"p95", ""}, {"p99", ""}}
	}
	return []field{{"p50", millisecondsText(p.P50)}, {"p95", millisecondsText(p.P95)}, {"p99", millisecondsText(p.P99)}}
}

func millisecondsText(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

type runStatsCmd struct {
	statsWindow

	Step string `default:"5m" placeholder:"STEP" help:"The length of an interval: 1m, 5m, 15m, 1h, 6h or 24h."`
	By   string `enum:",workflow,deployment" default:"" help:"Count by workflow or deployment."`
}

// runPoint is what happened to the runs of a series in an interval.
type runPoint struct {
	api.RunPoint

	series string
}

// Run prints a line for each interval in which something happened.
func (c runStatsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	query.Set("step", c.Step)
	columns := func(p runPoint) (fields []field) {
		if c.By != "" {
			fields = []field{{c.By, p.series}}
		}
		fields = append(fields, field{"from", timestamp(p.At.Time)}, field{"created", p.Created},
			field{"started", p.Started}, field{"completed", p.Completed}, field{"failed", p.Failed},
			field{"cancelled", p.Cancelled})
		return append(fields, tookFields(p.TookMs)...)
	}
	if c.By != "" {
		query.Set("by", c.By)
	}
	return s.stats(ctx, "runs", query, func(data []json.RawMessage) error {
		if s.json {
			return printTable(s, columns, data)
		}
		points, err := s.points(data)
		if err != nil {
			return err
		}
		return printItems(s, columns, points)
	})
}

// points returns the points of all series, each with the name of its series.
func (s *Session) points(data []json.RawMessage) ([]runPoint, error) {
	var points []runPoint
	for _, raw := range data {
		var series api.RunSeries
		if err := s.client.decode(raw, &series); err != nil {
			return nil, err
		}
		for _, p := range series.Points {
			points = append(points, runPoint{p, series.Name})
		}
	}
	return points, nil
}

// stats reads statistics and prints them. Without --json, it notes up to when they are complete.
func (s *Session) stats(ctx context.Context, kind string, query url.Values, print func([]json.RawMessage) error) error {
	var answer struct {
		api.Page[json.RawMessage]

		CompleteTo api.Time `json:"completeTo"`
	}
	if _, err := s.client.get(ctx, path("stats", kind), query, &answer); err != nil {
		return err
	}
	if err := print(answer.Data); err != nil || s.json {
		return err
	}
	s.note("complete up to %s", s.timeAndAge(answer.CompleteTo.Time))
	return nil
}

type stepStatsCmd struct{ statsWindow }

// Run prints a line for each step of each workflow.
func (c stepStatsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	return s.stats(ctx, "steps", query, func(data []json.RawMessage) error {
		return printTable(s, func(v api.StepStats) []field {
			return append([]field{
				{"workflow", v.Workflow}, {"step", v.Name}, {"completed", v.Completed}, {"failed", v.Failed},
				{"cancelled", v.Cancelled}, {"retried", v.Retried},
			}, tookFields(v.TookMs)...)
		}, data)
	})
}

type failureStatsCmd struct{ statsWindow }

// Run prints a line for each workflow and code.
func (c failureStatsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	return s.stats(ctx, "failures", query, func(data []json.RawMessage) error {
		return printTable(s, func(v api.FailureStats) []field {
			return []field{{"workflow", v.Workflow}, {"code", cmp.Or(v.Code, "(none)")}, {"failed", v.Count}}
		}, data)
	})
}

type gaugesRow api.Gauges

// columns are the gauges. A count that stopped at its limit has a +.
func (g gaugesRow) columns() []field {
	n := func(count int64) string { return countText(count, g.Capped) }
	return []field{
		{"runs pending", n(g.Runs.Pending)}, {"runs running", n(g.Runs.Running)}, {"messages due", n(g.Messages.Due)},
		{"oldest due", g.Messages.OldestDue}, {"messages leased", n(g.Messages.Leased)},
		{"messages delayed", n(g.Messages.Delayed)}, {"messages retrying", n(g.Messages.Retrying)},
		{"messages parked", n(g.Messages.Parked)},
	}
}

// attentionKind says what an item means, and which command shows more or helps.
type attentionKind struct {
	sentence func(i api.AttentionItem) string
	command  func(i api.AttentionItem) string
}

// always returns a command that does not depend on the item.
func always(command string) func(api.AttentionItem) string {
	return func(api.AttentionItem) string { return command }
}

func whyRun(i api.AttentionItem) string { return "why " + i.RunID }

// attentionKinds are the kinds of the API.
var attentionKinds = map[string]attentionKind{
	"project_paused": {
		func(api.AttentionItem) string { return "The project is paused: nothing of it starts or is called." },
		always("projects resume PROJECT"),
	},
	"paused": {
		func(i api.AttentionItem) string {
			return amount(i, "pause") + " of runs, workflows and deployments."
		}, always("pauses"),
	},
	"messages_parked": {
		func(i api.AttentionItem) string { return amount(i, "message") + " parked: retry or discard." },
		always("messages list"),
	},
	"runs_blocked": {
		func(i api.AttentionItem) string { return amount(i, "run") + " blocked: the function refuses to go on." }, whyRun,
	},
	"runs_stranded": {
		func(i api.AttentionItem) string {
			return amount(i, "run") + " stranded: nothing moves, though the server wakes it."
		}, whyRun,
	},
	"deployment_unreachable": {
		func(i api.AttentionItem) string {
			const away = "Deployment %s cannot be reached: %s waiting. Start it, or move it."
			return fmt.Sprintf(away, i.Deployment, amount(i, "message"))
		},
		func(i api.AttentionItem) string { return "deployments move " + i.Deployment + " URL" },
	},
	"deployment_missing": {
		func(i api.AttentionItem) string {
			return fmt.Sprintf("Deployment %s is not registered: %s waiting.", i.Deployment, amount(i, "message"))
		},
		func(i api.AttentionItem) string { return "deployments add " + i.Deployment + " URL" },
	},
	"workflow_failing": {
		func(i api.AttentionItem) string {
			const failing = "%s of workflow %s failed in the last hour; at most %d is usual."
			return fmt.Sprintf(failing, amount(i, "run"), i.Workflow, orZero(i.Usual))
		},
		func(i api.AttentionItem) string { return "runs list --status failed --workflow " + i.Workflow },
	},
	"queue_late": {
		func(i api.AttentionItem) string { return amount(i, "message") + " due and not delivered." }, always("stats now"),
	},
	"key_expiring": {
		func(i api.AttentionItem) string { return amount(i, "API key") + " about to expire." }, always("keys list"),
	},
	"two_signing_keys": {
		func(api.AttentionItem) string { return "Two signing keys for more than a week: delete the old one." },
		always("signing-keys list"),
	},
}

// amount returns the count with its noun.
func amount(i api.AttentionItem, noun string) string {
	const limit = 1000
	switch {
	case i.Count >= limit:
		return fmt.Sprintf("%d+ %ss", i.Count, noun)
	case i.Count == 1:
		return "1 " + noun
	default:
		return fmt.Sprintf("%d %ss", i.Count, noun)
	}
}

// attentionText says what the item means. A newer server may send kinds that have no sentence.
func attentionText(i api.AttentionItem) string {
	if kind, ok := attentionKinds[string(i.Kind)]; ok {
		return kind.sentence(i)
	}
	return strings.ReplaceAll(string(i.Kind), "_", " ") + "."
}

type attentionCmd struct{}

// Run prints what needs attention, with the command that shows more of each or helps.
func (attentionCmd) Run(ctx context.Context, s *Session) error {
	data, _, err := s.page(ctx, path("attention"), nil)
	if err != nil {
		return err
	}
	print := entryPrinter(s, s.printAttention)
	for _, raw := range data {
		if err := print(raw); err != nil {
			return err
		}
	}
	if len(data) == 0 && !s.json {
		return s.printResult(nil, "All is well: nothing needs attention.")
	}
	return nil
}

func (s *Session) printAttention(i api.AttentionItem) error {
	text := attentionText(i)
	if !i.Since.IsZero() {
		text += " Since " + s.timeAndAge(i.Since.Time) + "."
	}
	if !i.Until.IsZero() {
		text += " The first one " + s.timeAndAge(i.Until.Time) + "."
	}
	if err := s.printResult(nil, "- %s", text); err != nil {
		return err
	}
	if kind, ok := attentionKinds[string(i.Kind)]; ok {
		return s.printResult(nil, "  stepwell %s", kind.command(i))
	}
	return nil
}

func failureColumns(g api.FailureGroup) []field {
	return []field{
		{"workflow", entities.Title(g.Workflow)}, {"step", entities.Title(g.Step)}, {"code", g.Code},
		{"count", g.Count}, {"first", g.FirstAt}, {"last", g.LastAt}, {"example", g.RunID},
		{"message", cmp.Or(g.Shape, "-")},
	}
}

type failuresCmd struct {
	Window string `placeholder:"TIME" help:"How far back, such as 1h; default is 24h."`
}

// Run lists the groups, the one that failed last first.
func (c failuresCmd) Run(ctx context.Context, s *Session) error {
	query := nonEmpty(url.Values{"window": {c.Window}})
	var groups api.FailureGroups
	raw, err := s.client.get(ctx, path("failures"), query, &groups)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	if groups.More {
		s.note("only the last 1,000 failed runs are counted")
	}
	return printItems(s, failureColumns, groups.Data)
}

type workflowRow api.WorkflowSummary

func (w workflowRow) columns() []field {
	return []field{
		{"workflow", w.Name}, {"deployment", w.Deployment}, {"last run", w.LastRunAt},
		{"open", countText(w.Open, w.MoreOpen)},
	}
}

type workflowsCmd struct {
	List   listWorkflowsCmd     `cmd:"" default:"withargs" help:"List the workflows that have runs."`
	Pause  changeCmd[namedNote] `cmd:"" at:"PUT pauses/workflow/*" says:"workflow $1 is paused" help:"Call nothing of the runs of a workflow until it is resumed."`
	Resume changeCmd[named]     `cmd:"" at:"DELETE pauses/workflow/*" says:"workflow $1 goes on" help:"Let the runs of a paused workflow go on."`
}

type listWorkflowsCmd struct {
	Limit  int    `placeholder:"N" help:"List at most this many entries; default 100."`
	All    bool   `help:"List all entries."`
	Cursor string `placeholder:"CURSOR" help:"Continue an earlier list at its cursor."`
}

// Run lists the workflows by name.
func (c listWorkflowsCmd) Run(ctx context.Context, s *Session) error {
	return list[workflowRow](ctx, s, path("workflows"), nil, paging{Limit: c.Limit, All: c.All, Cursor: c.Cursor})
}
