package remote

import (
	"context"
	"net/http"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type schedulesCmd struct {
	List     listSchedulesCmd    `cmd:"" help:"List the schedules."`
	Show     showScheduleCmd     `cmd:"" help:"Show a schedule, its next ticks, and why it starts nothing."`
	Put      putScheduleCmd      `cmd:"" help:"Create or replace a schedule."`
	Remove   removeScheduleCmd   `cmd:"" help:"Delete a schedule; its runs go on."`
	Pause    pauseScheduleCmd    `cmd:"" help:"Stop a schedule until it is resumed."`
	Resume   resumeScheduleCmd   `cmd:"" help:"Let a paused schedule go on with its next tick."`
	Trigger  triggerScheduleCmd  `cmd:"" help:"Start a run of a schedule now."`
	Backfill backfillScheduleCmd `cmd:"" help:"Start runs for ticks of the past, or end that."`
	Ticks    listTicksCmd        `cmd:"" help:"List what was decided about the ticks of a schedule."`
}

// timing says when a schedule ticks.
func timing(g api.Schedule) string {
	if g.Every != "" {
		return "every " + g.Every
	}
	return strings.TrimSpace(g.Cron + " " + g.TimeZone)
}

// scheduleState is a word for what a schedule does.
func scheduleState(g api.Schedule) string {
	switch {
	case !g.PausedAt.IsZero():
		return "paused"
	case !g.WaitingAt.IsZero():
		return "waiting"
	default:
		return "active"
	}
}

var scheduleColumns = []column[api.Schedule]{
	{"NAME", func(g api.Schedule) any { return g.Name }},
	{"WHEN", func(g api.Schedule) any { return timing(g) }},
	{"WORKFLOW", func(g api.Schedule) any { return g.Workflow }},
	{"STATE", func(g api.Schedule) any { return scheduleState(g) }},
	{"NEXT", func(g api.Schedule) any { return g.NextAt }},
	{"LAST RUN", func(g api.Schedule) any { return g.RunID }},
}

type listSchedulesCmd struct{ paging }

// Run lists the schedules.
func (c listSchedulesCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("schedules"), nil, c.paging, scheduleColumns)
}

// scheduleName is the argument that names a schedule.
type scheduleName struct {
	Name string `arg:"" help:"The schedule's name."`
}

type showScheduleCmd struct{ scheduleName }

// Run prints the schedule.
func (c showScheduleCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("schedules", c.Name), nil, func(g api.Schedule) []field {
		fields := []field{
			{"schedule", g.Name}, {"when", timing(g)}, {"jitter", g.Jitter}, {"workflow", g.Workflow},
			{"deployment", g.Deployment}, {"timeout", g.Timeout}, {"overlap", g.Overlap},
			{"catch up", g.CatchUp + " within " + g.CatchUpWindow}, {"paused", g.PausedAt}, {"note", g.PauseNote},
			{"last run", g.RunID}, {"waiting tick", g.WaitingAt}, {"backfill until", orZero(g.Backfill).Until},
		}
		for _, r := range g.Why {
			fields = append(fields, field{"why", r.Text})
		}
		for _, at := range g.Next {
			fields = append(fields, field{"next", at})
		}
		return fields
	})
}

type putScheduleCmd struct {
	scheduleName
	Workflow      string            `arg:"" help:"The workflow of the runs."`
	Cron          string            `placeholder:"CRON" xor:"when" help:"When it ticks, such as '30 2 * * MON-FRI'."`
	Every         string            `placeholder:"TIME" xor:"when" help:"The time between ticks instead, such as 15m."`
	TimeZone      string            `placeholder:"ZONE" help:"The zone whose clock --cron means, such as Europe/Berlin."`
	From          string            `placeholder:"TIME" help:"The first time at which it may tick, in RFC 3339."`
	Until         string            `placeholder:"TIME" help:"The last time at which it may tick, in RFC 3339."`
	Input         jsonFlag          `short:"i" placeholder:"JSON" help:"The runs' input: ${json}."`
	Deployment    string            `placeholder:"ID" help:"${target}"`
	Attr          map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	Timeout       string            `placeholder:"TIME" help:"How long a run may take."`
	Overlap       string            `enum:"${overlaps}" default:"" placeholder:"HOW" help:"${overlap}"`
	CatchUp       string            `enum:",latest,all" default:"" placeholder:"HOW" help:"${catchUp}"`
	CatchUpWindow string            `placeholder:"TIME" help:"How late a tick may be; default 24h."`
	Jitter        string            `placeholder:"TIME" help:"The time in which the starts are spread."`
}

// Run stores the schedule.
func (c putScheduleCmd) Run(ctx context.Context, s *Session) error {
	input, err := c.Input.read(s, "--input")
	if err != nil {
		return err
	}
	body := jsonBody{
		"workflow": c.Workflow, "cron": c.Cron, "every": c.Every, "timeZone": c.TimeZone, "input": input,
		"deployment": c.Deployment, "attributes": c.Attr, "timeout": c.Timeout, "overlap": c.Overlap,
		"catchUp": c.CatchUp, "catchUpWindow": c.CatchUpWindow, "jitter": c.Jitter, "from": c.From, "until": c.Until,
	}.omitZero()
	return s.changeSchedule(ctx, http.MethodPut, path("schedules", c.Name), body)
}

// changeSchedule sends a request that changes a schedule, and prints the schedule and its next tick.
func (s *Session) changeSchedule(ctx context.Context, method, path string, body any) error {
	var g api.Schedule
	raw, err := s.client.call(ctx, method, path, body, &g)
	if err != nil {
		return err
	}
	text := scheduleState(g)
	if !g.NextAt.IsZero() {
		text += ", next at " + s.formatTime(g.NextAt.Time)
	}
	return s.printResult(raw, "%s is %s", g.Name, text)
}

type removeScheduleCmd struct{ scheduleName }

// Run deletes the schedule.
func (c removeScheduleCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("schedules", c.Name))
}

type pauseScheduleCmd struct {
	scheduleName
	Note string `placeholder:"TEXT" help:"The reason, shown with it."`
}

// Run pauses the schedule.
func (c pauseScheduleCmd) Run(ctx context.Context, s *Session) error {
	return s.changeSchedule(ctx, http.MethodPost, path("schedules", c.Name, "pause"), jsonBody{"note": c.Note}.omitZero())
}

type resumeScheduleCmd struct{ scheduleName }

// Run resumes the schedule.
func (c resumeScheduleCmd) Run(ctx context.Context, s *Session) error {
	return s.changeSchedule(ctx, http.MethodPost, path("schedules", c.Name, "resume"), nil)
}

type triggerScheduleCmd struct{ scheduleName }

// Run starts a run, and prints its ID.
func (c triggerScheduleCmd) Run(ctx context.Context, s *Session) error {
	var t api.Tick
	raw, err := s.client.call(ctx, http.MethodPost, path("schedules", c.Name, "trigger"), nil, &t)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", t.RunID)
}

type backfillScheduleCmd struct {
	scheduleName
	From   timeFlag `placeholder:"TIME" help:"The first tick, as ${time}."`
	To     timeFlag `placeholder:"TIME" help:"The last tick, as ${time}."`
	Repeat bool     `help:"Repeat ticks that have started a run before."`
	End    bool     `help:"End the backfill under way instead."`
}

// Run orders or ends a backfill.
func (c backfillScheduleCmd) Run(ctx context.Context, s *Session) error {
	if c.End {
		return s.changeSchedule(ctx, http.MethodDelete, path("schedules", c.Name, "backfill"), nil)
	}
	if c.From == "" || c.To == "" {
		return usageErrorf("give --from and --to, or --end")
	}
	from, err := c.From.resolve(s.Now())
	if err != nil {
		return err
	}
	to, err := c.To.resolve(s.Now())
	if err != nil {
		return err
	}
	body := jsonBody{"from": from, "to": to, "repeat": c.Repeat}.omitZero()
	return s.changeSchedule(ctx, http.MethodPost, path("schedules", c.Name, "backfill"), body)
}

var tickColumns = []column[api.Tick]{
	{"TICK", func(t api.Tick) any { return timestamp(t.At.Time) }},
	{"KIND", func(t api.Tick) any { return t.Kind }},
	{"DECISION", func(t api.Tick) any { return t.Decision }},
	{"COUNT", func(t api.Tick) any { return t.Count }},
	{"RUN", func(t api.Tick) any { return t.RunID }},
	{"REASON", func(t api.Tick) any { return t.Reason }},
}

type listTicksCmd struct {
	scheduleName
	paging
}

// Run lists the ticks.
func (c listTicksCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("schedules", c.Name, "ticks"), nil, c.paging, tickColumns)
}
