package why

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// ScheduleFacts are what an explanation of a schedule depends on.
type ScheduleFacts struct {
	Schedule schedule.Schedule
	// Work is the schedule's work in the queue; nil if there is none.
	Work *TaskState
	// Run is the last run, and Backfilled the last one of the backfill; nil if there is none or it has ended.
	Run, Backfilled *entities.Run
	// Last is the last decision about a tick that came by itself; nil if there is none.
	Last *schedule.Tick
}

// ReadSchedule reads the facts about a schedule. It fails with [schedule.ErrNotFound].
func ReadSchedule(
	ctx context.Context, q pg.Querier, project entities.Project, name string,
) (f ScheduleFacts, err error) {
	if f.Schedule, err = schedule.ByName(ctx, q, project, name); err != nil {
		return f, err
	}
	if f.Work, err = readTask(ctx, q, project, message.WorkSchedule, string(f.Schedule.ID)); err != nil {
		return f, err
	}
	for _, r := range []struct {
		id   entities.RunID
		into **entities.Run
	}{{f.Schedule.RunID, &f.Run}, {f.Schedule.BackfillRunID, &f.Backfilled}} {
		if r.id == "" {
			continue
		}
		run, err := store.RunByID(ctx, q, project, r.id)
		if err != nil && !errors.Is(err, entities.ErrRunNotFound) {
			return f, err
		}
		if err == nil && !run.Status.Ended() {
			*r.into = &run
		}
	}
	f.Last, err = schedule.LastTick(ctx, q, f.Schedule.ID)
	return f, err
}

// ExplainSchedule returns why a schedule starts no run, or did not at its last tick; nothing if all is well. It is
// pure.
func ExplainSchedule(f ScheduleFacts) []StartReason {
	list := f.Work.reasons("deciding its ticks")
	s := f.Schedule
	if s.PausedAt != nil {
		list.add(StartReason{Kind: StartPaused, Since: s.PausedAt}, "it is paused%s: resume it", note(s.PauseNote))
		return list
	}
	if l := f.Last; l != nil && l.Decision == schedule.Refused {
		list.add(StartReason{Kind: StartRefused, Since: &l.DecidedAt, At: s.NextAt},
			"the run of the last tick was refused: %s", l.Reason)
	}
	switch {
	case f.Run == nil:
	case s.WaitingAt != nil:
		list.add(StartReason{Kind: StartWaits, Since: s.WaitingAt, RunID: f.Run.ID},
			"a tick waits for the end of run %s: wait for it, or cancel the run", f.Run.ID)
	case s.Overlap == schedule.OverlapSkip:
		list.add(StartReason{Kind: StartSkips, Since: &f.Run.CreatedAt, RunID: f.Run.ID},
			"run %s has not ended, and until then ticks are skipped: wait for it, cancel the run, or set another overlap",
			f.Run.ID)
	}
	if s.BackfillAt != nil && f.Backfilled != nil && s.Overlap != schedule.OverlapAllow {
		list.add(StartReason{Kind: StartFills, Since: &f.Backfilled.CreatedAt, RunID: f.Backfilled.ID},
			"the backfill waits for the end of run %s: wait for it, or cancel the run", f.Backfilled.ID)
	}
	if s.NextAt == nil {
		list.add(StartReason{Kind: StartOver}, "%s", whyOver(s))
	}
	return list
}

// whyOver returns why a schedule has no next tick.
func whyOver(s schedule.Schedule) string {
	if s.UntilAt == nil {
		return "it has no tick in the next 40 years: put another cron"
	}
	return fmt.Sprintf("it has no tick until %s, which it may not exceed: put a later until",
		s.UntilAt.UTC().Format(time.RFC3339))
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
