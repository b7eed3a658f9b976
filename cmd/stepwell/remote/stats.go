package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type statsCmd struct {
	Now      objectCmd[gaugesRow, none] `cmd:"" at:"stats/now" help:"Count the open runs and the queue."`
	Runs     runStatsCmd                `cmd:"" at:"stats/runs" help:"Count runs in intervals of time."`
	Steps    countsCmd[stepStatsRow]    `cmd:"" at:"stats/steps" help:"Count steps by their name."`
	Failures countsCmd[failureStatsRow] `cmd:"" at:"stats/failures" help:"Count failed runs by the code of their error."`
}

// statsWindow are the flags of statistics.
type statsWindow struct {
	From     timeFlag `placeholder:"TIME" help:"Count from this time on: ${time}; default is an hour before --to."`
	To       timeFlag `placeholder:"TIME" help:"Count up to this time: ${time}; default is now."`
	Workflow string   `placeholder:"NAME" help:"Count only this workflow."`
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
func (c runStatsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	columns := func(p runPoint) (fields []field) {
		if c.By != "" {
			fields = []field{{c.By, p.series}}
		}
		fields = append(fields, field{"from", timestamp(p.At.Time)}, field{"created", p.Created},
			field{"started", p.Started}, field{"completed", p.Completed}, field{"failed", p.Failed},
			field{"cancelled", p.Cancelled})
		return append(fields, tookFields(p.TookMs)...)
	}
	return s.stats(ctx, k, func(data []json.RawMessage) error {
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
func (s *Session) stats(ctx context.Context, k *kong.Context, print func([]json.RawMessage) error) error {
	answer, _, err := sendFor[struct {
		api.Page[json.RawMessage]

		CompleteTo api.Time `json:"completeTo"`
	}](ctx, k, s)
	if err != nil {
		return err
	}
	if err := print(answer.Data); err != nil || s.json {
		return err
	}
	s.note("complete up to %s", s.timeAndAge(answer.CompleteTo.Time))
	return nil
}

// countsCmd prints statistics with a line for each row.
type countsCmd[T row] struct{ statsWindow }

// Run prints the rows.
func (countsCmd[T]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	return s.stats(ctx, k, func(data []json.RawMessage) error { return printTable(s, T.columns, data) })
}

type stepStatsRow api.StepStats

func (v stepStatsRow) columns() []field {
	return append([]field{
		{"workflow", v.Workflow}, {"step", v.Name}, {"completed", v.Completed}, {"failed", v.Failed},
		{"cancelled", v.Cancelled}, {"retried", v.Retried},
	}, tookFields(v.TookMs)...)
}

type failureStatsRow api.FailureStats

func (v failureStatsRow) columns() []field {
	return []field{{"workflow", v.Workflow}, {"code", cmp.Or(v.Code, "(none)")}, {"failed", v.Count}}
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

// attentionKind says what an item means, and which command shows more or helps. A name after $ stands for a field of
// the item, and a noun for the count with it.
type attentionKind struct{ sentence, command string }

// attentionKinds are the kinds of the API.
var attentionKinds = map[string]attentionKind{
	"project_paused":  {"The project is paused: nothing of it starts or is called.", "projects resume PROJECT"},
	"paused":          {"$pauses of runs, workflows and deployments.", "pauses"},
	"messages_parked": {"$messages parked: retry or discard.", "messages list"},
	"runs_blocked":    {"$runs blocked: the function refuses to go on.", "why $run"},
	"runs_stranded":   {"$runs stranded: nothing moves, though the server wakes it.", "why $run"},
	"deployment_unreachable": {
		"Deployment $deployment cannot be reached: $messages waiting. Start it, or move it.",
		"deployments move $deployment URL",
	},
	"deployment_missing": {
		"Deployment $deployment is not registered: $messages waiting.",
		"deployments add $deployment URL",
	},
	"workflow_failing": {
		"$runs of workflow $workflow failed in the last hour; at most $usual is usual.",
		"runs list --status failed --workflow $workflow",
	},
	"queue_late":       {"$messages due and not delivered.", "stats now"},
	"key_expiring":     {"$keys about to expire.", "keys list"},
	"two_signing_keys": {"Two signing keys for more than a week: delete the old one.", "signing-keys list"},
}

// expandItem returns a text with what it says of an item.
func expandItem(text string, i api.AttentionItem) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "run":
			return i.RunID
		case "deployment":
			return i.Deployment
		case "workflow":
			return i.Workflow
		case "usual":
			return fmt.Sprint(orZero(i.Usual))
		case "keys":
			return amount(i, "API key")
		default:
			return amount(i, strings.TrimSuffix(name, "s"))
		}
	})
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
		return expandItem(kind.sentence, i)
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
		return s.printResult(nil, "  stepwell %s", expandItem(kind.command, i))
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
func (failuresCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	groups, raw, err := sendFor[api.FailureGroups](ctx, k, s)
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
