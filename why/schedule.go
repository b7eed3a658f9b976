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

// ScheduleKind is a kind of reason why a schedule starts no run.
type ScheduleKind string

// The kinds, ordered by how much they need a person.
const (
	// ScheduleParked: deciding the ticks failed so often that it is not tried again until somebody retries it.
	ScheduleParked ScheduleKind = "parked"
	// ScheduleFails: deciding the ticks fails, and is tried again.
	ScheduleFails ScheduleKind = "task_fails"
	// SchedulePaused: somebody paused the schedule.
	SchedulePaused ScheduleKind = "paused"
	// ScheduleRefused: the run of the last tick could not be started.
	ScheduleRefused ScheduleKind = "refused"
	// ScheduleSkips: the last run has not ended, and ticks are skipped meanwhile.
	ScheduleSkips ScheduleKind = "overlap"
	// ScheduleWaits: a tick waits for the end of the last run.
	ScheduleWaits ScheduleKind = "waiting"
	// ScheduleFills: the backfill waits for the end of its last run.
	ScheduleFills ScheduleKind = "backfill"
	// ScheduleOver: the schedule has no further tick.
	ScheduleOver ScheduleKind = "no_tick"
)

// ScheduleReason is one reason why a schedule starts no run.
type ScheduleReason struct {
	Kind ScheduleKind
	// Text says it in a sentence, with what ends it.
	Text string
	// Since is when it began, and At when it is tried again by itself; nil if that is unknown.
	Since, At *time.Time
	// RunID is the run whose end it needs, and MessageID the schedule's work in the queue.
	RunID     entities.RunID
	MessageID string
}

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

// TaskState is the state of work in the queue that belongs to no run.
type TaskState struct {
	ID        string
	DueAt     time.Time
	ParkedAt  *time.Time
	LastError string
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

// readTask reads the state of work that belongs to no run; nil if there is none.
func readTask(
	ctx context.Context, q pg.Querier, project entities.Project, work message.Work, subject string,
) (*TaskState, error) {
	list, err := pg.CollectAll[TaskState](q.Query(ctx, `
		SELECT id, due_at, parked_at, last_error FROM messages
		WHERE run_id = '' AND work = $1 AND work <> '' AND subject = $2 AND project = $3`, work, subject, project))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "read work %s of %s", work, subject)
	}
	return &list[0], nil
}

// ExplainSchedule returns why a schedule starts no run, or did not at its last tick; nothing if all is well. It is
// pure.
func ExplainSchedule(f ScheduleFacts) []ScheduleReason {
	var list []ScheduleReason
	add := func(r ScheduleReason, format string, args ...any) {
		r.Text = fmt.Sprintf(format, args...)
		list = append(list, r)
	}
	s := f.Schedule
	if w := f.Work; w != nil && w.ParkedAt != nil {
		add(ScheduleReason{Kind: ScheduleParked, Since: w.ParkedAt, MessageID: w.ID},
			"deciding its ticks failed too often: retry message %s", w.ID)
	} else if w != nil && w.LastError != "" {
		add(ScheduleReason{Kind: ScheduleFails, At: &w.DueAt, MessageID: w.ID},
			"deciding its ticks failed, and is tried again by itself")
	}
	if s.PausedAt != nil {
		add(ScheduleReason{Kind: SchedulePaused, Since: s.PausedAt}, "it is paused%s: resume it", note(s.PauseNote))
		return list
	}
	if l := f.Last; l != nil && l.Decision == schedule.Refused {
		add(ScheduleReason{Kind: ScheduleRefused, Since: &l.DecidedAt, At: s.NextAt},
			"the run of the last tick was refused: %s", l.Reason)
	}
	switch {
	case f.Run == nil:
	case s.WaitingAt != nil:
		add(ScheduleReason{Kind: ScheduleWaits, Since: s.WaitingAt, RunID: f.Run.ID},
			"a tick waits for the end of run %s: wait for it, or cancel the run", f.Run.ID)
	case s.Overlap == schedule.OverlapSkip:
		add(ScheduleReason{Kind: ScheduleSkips, Since: &f.Run.CreatedAt, RunID: f.Run.ID},
			"run %s has not ended, and until then ticks are skipped: wait for it, cancel the run, or set another overlap",
			f.Run.ID)
	}
	if s.BackfillAt != nil && f.Backfilled != nil && s.Overlap != schedule.OverlapAllow {
		add(ScheduleReason{Kind: ScheduleFills, Since: &f.Backfilled.CreatedAt, RunID: f.Backfilled.ID},
			"the backfill waits for the end of run %s: wait for it, or cancel the run", f.Backfilled.ID)
	}
	if s.NextAt == nil {
		add(ScheduleReason{Kind: ScheduleOver}, "%s", whyOver(s))
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
