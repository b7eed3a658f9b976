package remote

import (
	"context"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type schedulesCmd struct {
	List     listCmd[scheduleRow, none]            `cmd:"" at:"schedules" help:"List the schedules."`
	Show     objectCmd[scheduleRow, named]         `cmd:"" at:"schedules/*" help:"Show a schedule, its next ticks, and why it starts nothing."`
	Put      objectCmd[scheduleRow, scheduleFlags] `cmd:"" at:"PUT schedules/*" help:"Create or replace a schedule."`
	Remove   removeCmd[names]                      `cmd:"" at:"DELETE schedules/*" help:"Delete schedules; their runs go on."`
	Pause    objectCmd[scheduleRow, namedNote]     `cmd:"" at:"POST schedules/*/pause" help:"Stop a schedule until it is resumed."`
	Resume   objectCmd[scheduleRow, named]         `cmd:"" at:"POST schedules/*/resume" help:"Let a paused schedule go on with its next tick."`
	Trigger  changeCmd[named]                      `cmd:"" at:"POST schedules/*/trigger" says:"$runId" help:"Start a run of a schedule now."`
	Backfill backfillScheduleCmd                   `cmd:"" at:"POST schedules/*/backfill" help:"Start runs for ticks of the past, or end that."`
	Ticks    listCmd[tickRow, named]               `cmd:"" at:"schedules/*/ticks" help:"List what was decided about the ticks of a schedule."`
}

// namedNote are the arguments of commands that pause what has a name.
type namedNote struct {
	named
	note
}

// state is a word for what the schedule does.
func (g scheduleRow) state() string {
	switch {
	case !g.PausedAt.IsZero():
		return "paused"
	case !g.WaitingAt.IsZero():
		return "waiting"
	default:
		return "active"
	}
}

type scheduleRow api.Schedule

func (g scheduleRow) columns() []field {
	return []field{
		{"name", g.Name}, {"when", g.timing()}, {"workflow", g.Workflow}, {"state", g.state()},
		{"next", g.NextAt}, {"last run", g.RunID},
	}
}

// timing says when the schedule ticks.
func (g scheduleRow) timing() string {
	if g.Every != "" {
		return "every " + g.Every
	}
	return strings.TrimSpace(g.Cron + " " + g.TimeZone)
}

func (g scheduleRow) details() []field {
	fields := []field{
		{"jitter", g.Jitter}, {"deployment", g.Deployment}, {"timeout", g.Timeout}, {"overlap", g.Overlap},
		{"catch up", g.CatchUp + " within " + g.CatchUpWindow}, {"paused", g.PausedAt}, {"note", g.PauseNote},
		{"waiting tick", g.WaitingAt}, {"backfill until", orZero(g.Backfill).Until},
	}
	for _, r := range g.Why {
		fields = append(fields, field{"why", r.Text})
	}
	for _, at := range g.Next {
		fields = append(fields, field{"tick", at})
	}
	return fields
}

// scheduleFlags are the settings of a schedule.
type scheduleFlags struct {
	named
	Workflow      string            `arg:"" field:"workflow" help:"The workflow of the runs."`
	Cron          string            `placeholder:"CRON" xor:"when" help:"When it ticks, such as '30 2 * * MON-FRI'."`
	Every         string            `placeholder:"TIME" xor:"when" help:"The time between ticks instead, such as 15m."`
	TimeZone      string            `placeholder:"ZONE" help:"The zone whose clock --cron means, such as Europe/Berlin."`
	From          string            `placeholder:"TIME" help:"The first time at which it may tick, in RFC 3339."`
	Until         string            `placeholder:"TIME" help:"The last time at which it may tick, in RFC 3339."`
	Input         jsonFlag          `short:"i" placeholder:"JSON" help:"The runs' input: ${json}."`
	Deployment    string            `placeholder:"ID" help:"${target}"`
	Attr          map[string]string `field:"attributes" mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	Timeout       string            `placeholder:"TIME" help:"How long a run may take."`
	Overlap       string            `enum:"${overlaps}" default:"" placeholder:"HOW" help:"${overlap}"`
	CatchUp       string            `enum:",latest,all" default:"" placeholder:"HOW" help:"${catchUp}"`
	CatchUpWindow string            `placeholder:"TIME" help:"How late a tick may be; default 24h."`
	Jitter        string            `placeholder:"TIME" help:"The time in which the starts are spread."`
}

type backfillScheduleCmd struct {
	named
	From   timeFlag `placeholder:"TIME" help:"The first tick, as ${time}."`
	To     timeFlag `placeholder:"TIME" help:"The last tick, as ${time}."`
	Repeat bool     `help:"Repeat ticks that have started a run before."`
	End    bool     `field:"-" help:"End the backfill under way instead."`
}

// Run orders or ends a backfill.
func (c backfillScheduleCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case c.End:
		r.method, r.params = http.MethodDelete, nil
	case c.From == "" || c.To == "":
		return usageErrorf("give --from and --to, or --end")
	}
	return printAnswer[scheduleRow](ctx, s, r)
}

type tickRow api.Tick

func (t tickRow) columns() []field {
	return []field{
		{"tick", timestamp(t.At.Time)}, {"kind", t.Kind}, {"decision", t.Decision}, {"count", t.Count},
		{"run", t.RunID}, {"reason", t.Reason},
	}
}
