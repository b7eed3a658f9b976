package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// Put creates a schedule or replaces what is said about one, and reports whether it is new. A schedule whose ticks
// change ticks from now on: those of the past that are undecided are left out, unless only its begin or its end
// changes. Ticks that wait, and would not with the new overlap, are skipped. Saying the same again changes nothing.
//
// It fails with [entities.ErrInvalid], with [message.ErrDeploymentNotFound] if no app has the workflow, and with
// [schedule.ErrTooMany].
func (s *Scheduler) Put(
	ctx context.Context, p entities.Project, name string, spec schedule.Spec,
) (sched schedule.Schedule, created bool, err error) {
	if err := entities.ValidateName("schedule name", name); err != nil {
		return sched, false, err
	}
	if err := spec.Validate(); err != nil {
		return sched, false, err
	}
	wanted := schedule.Schedule{Spec: spec, Project: p, Name: name}
	if _, err := s.queue.StartDeployment(ctx, p, spec.Workflow, spec.Deployment); err != nil {
		return sched, false, err
	}
	err = untilUnchanged(func() (err error) {
		sched, err = schedule.ByName(ctx, pg.NewPool(s.pool), p, name)
		if created = errors.Is(err, schedule.ErrNotFound); created {
			sched, err = s.create(ctx, wanted)
			return err
		}
		if err != nil || same(sched.Spec, spec) {
			return err
		}
		sched, err = s.change(ctx, sched, admin.ActionSchedulePut, func(d *decision, now time.Time) error {
			if err := d.leaveOut(spec, now); err != nil {
				return err
			}
			d.dropWaiting(spec.Overlap, now)
			d.after.Spec = spec
			return nil
		})
		return err
	})
	return sched, created && err == nil, err
}

// leaveOut leaves out the ticks of the past that are undecided if the schedule is to tick at other times. If only its
// begin or its end changes, those that are due stay so.
func (d *decision) leaveOut(spec schedule.Spec, now time.Time) error {
	if sameTicks(d.after.Spec, spec) {
		return nil
	}
	if sameRhythm(d.after.Spec, spec) {
		timing, err := d.after.Timing()
		if err != nil {
			return err
		}
		if next, ok := timing.Next(d.after.DecidedUntil); ok && !next.After(now) {
			return nil
		}
	}
	d.after.DecidedUntil = now
	return nil
}

// dropWaiting records that the ticks are skipped that wait, and would not with the new overlap.
func (d *decision) dropWaiting(o schedule.Overlap, now time.Time) {
	s := &d.after
	if s.WaitingAt == nil || o == schedule.OverlapWaitAll {
		return
	}
	dropped := s.WaitingMore
	s.WaitingMore = nil
	if o != schedule.OverlapWait {
		dropped = append([]time.Time{*s.WaitingAt}, dropped...)
		s.WaitingAt = nil
	}
	for _, at := range dropped {
		d.record(schedule.Tick{
			Kind: schedule.KindTick, At: at, Decision: schedule.Skipped, RunID: s.RunID, Reason: "the overlap was changed",
		}, now)
	}
}

// same reports whether both say the same.
func same(a, b schedule.Spec) bool {
	return bytes.Equal(a.Input, b.Input) && maps.Equal(a.Attributes, b.Attributes) &&
		sameTicks(a, b) && a.Workflow == b.Workflow &&
		a.Deployment == b.Deployment && a.Timeout == b.Timeout && a.Overlap == b.Overlap && a.CatchUp == b.CatchUp &&
		a.CatchUpWindow == b.CatchUpWindow && a.Jitter == b.Jitter
}

// sameTicks reports whether both tick at the same times.
func sameTicks(a, b schedule.Spec) bool {
	return sameRhythm(a, b) && sameTime(a.FromAt, b.FromAt) && sameTime(a.UntilAt, b.UntilAt)
}

// sameRhythm reports whether both tick at the same times, except for their begin and their end.
func sameRhythm(a, b schedule.Spec) bool {
	return a.Cron == b.Cron && a.Every == b.Every && a.TimeZone == b.TimeZone
}

func sameTime(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// create stores a new schedule.
func (s *Scheduler) create(ctx context.Context, sched schedule.Schedule) (schedule.Schedule, error) {
	now := s.log.Now()
	sched.ID, sched.Revision = schedule.NewID(), 1
	sched.CreatedAt, sched.UpdatedAt, sched.DecidedUntil = now, now, now
	d := decision{after: sched}
	if err := d.planAgain(now); err != nil {
		return schedule.Schedule{}, err
	}
	return d.after, s.store(ctx, sched, func(b *pgx.Batch) func() error { return schedule.Create(b, d.after) },
		func(b *pgx.Batch) {
			admin.InsertAction(ctx, b, sched.Project, admin.ActionSchedulePut, sched.Name, nil)
		})
}

// store executes the check and the writes of a request in one transaction, and makes the schedule's work due.
func (s *Scheduler) store(
	ctx context.Context, sched schedule.Schedule, lock func(*pgx.Batch) (check func() error), write func(*pgx.Batch),
) error {
	var check func() error
	err := pg.Pipelined{
		First: func(b *pgx.Batch) { check = lock(b) },
		Then: func(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) (ended func(error), err error) {
			if err := check(); err != nil {
				return nil, err
			}
			var b pgx.Batch
			write(&b)
			_, ended, err = s.queue.Enqueue(ctx, tx, &b, []message.Message{{
				Project: sched.Project, Topic: sched.Name, Work: message.WorkSchedule, Subject: string(sched.ID), Urgent: true,
			}})
			return ended, err
		},
	}.Run(ctx, s.pool)
	return pg.Wrap(err, "write schedule %s", sched.Name)
}

// planAgain sets the next tick of a schedule that has changed.
func (d *decision) planAgain(now time.Time) error {
	timing, err := d.after.Timing()
	if err == nil {
		d.plan(timing, facts{now: now})
	}
	return err
}

// change changes a schedule as a request says, if it is still as it was read, makes its work due, and returns the
// schedule as written.
func (s *Scheduler) change(
	ctx context.Context, sched schedule.Schedule, kind admin.ActionKind, edit func(d *decision, now time.Time) error,
) (schedule.Schedule, error) {
	now := s.log.Now()
	d := decision{after: sched, start: -1}
	if err := edit(&d, now); err != nil {
		return sched, err
	}
	d.after.UpdatedAt = now
	if err := d.planAgain(now); err != nil {
		return sched, err
	}
	by := byRequest(ctx, sched, kind)
	err := s.store(ctx, sched, func(b *pgx.Batch) func() error { return schedule.Lock(b, sched) },
		func(b *pgx.Batch) { finish(b, d, by) })
	d.after.Revision++
	return d.after, err
}

// changeNamed is change for a schedule that is read first, and again if it changes meanwhile. An edit that returns
// errNoChange leaves it as it is.
func (s *Scheduler) changeNamed(
	ctx context.Context, p entities.Project, name string, kind admin.ActionKind,
	edit func(d *decision, now time.Time) error,
) (sched schedule.Schedule, err error) {
	err = untilUnchanged(func() (err error) {
		if sched, err = schedule.ByName(ctx, pg.NewPool(s.pool), p, name); err != nil {
			return err
		}
		changed, err := s.change(ctx, sched, kind, edit)
		if errors.Is(err, errNoChange) {
			return nil
		}
		sched = changed
		return err
	})
	return sched, err
}

// errNoChange means that a schedule is already as a request wants it.
var errNoChange = errors.New("no change")

// Delete deletes a schedule with its ticks. Its runs go on. It fails with [schedule.ErrNotFound].
func (s *Scheduler) Delete(ctx context.Context, p entities.Project, name string) error {
	return untilUnchanged(func() error {
		sched, err := schedule.ByName(ctx, pg.NewPool(s.pool), p, name)
		if err != nil {
			return err
		}
		// The handler ends the work of a schedule that is gone.
		return s.store(ctx, sched, func(b *pgx.Batch) func() error { return schedule.Lock(b, sched) }, func(b *pgx.Batch) {
			schedule.Delete(b, sched)
			admin.InsertAction(ctx, b, p, admin.ActionScheduleRemove, name, nil)
		})
	})
}

// Pause stops a schedule until it is resumed. The note, which may be empty, says why; that of a paused schedule is
// replaced. It fails with [entities.ErrInvalid] and [schedule.ErrNotFound].
func (s *Scheduler) Pause(
	ctx context.Context, p entities.Project, name, note string,
) (schedule.Schedule, error) {
	if err := schedule.ValidateNote(note); err != nil {
		return schedule.Schedule{}, err
	}
	return s.changeNamed(ctx, p, name, admin.ActionSchedulePause, func(d *decision, now time.Time) error {
		if d.after.PausedAt != nil && d.after.PauseNote == note {
			return errNoChange
		}
		if d.after.PausedAt == nil {
			d.after.PausedAt = &now
		}
		d.after.PauseNote = note
		return nil
	})
}

// Resume lets a paused schedule go on with its next tick. The ticks of the pause are missed: they are not caught up. It
// fails with [schedule.ErrNotFound].
func (s *Scheduler) Resume(ctx context.Context, p entities.Project, name string) (schedule.Schedule, error) {
	return s.changeNamed(ctx, p, name, admin.ActionScheduleResume, func(d *decision, now time.Time) error {
		if d.after.PausedAt == nil {
			return errNoChange
		}
		timing, err := d.after.Timing()
		if err != nil {
			return err
		}
		paused := missed{reason: "the schedule was paused"}
		for at, ok := timing.Next(d.after.DecidedUntil); ok && !at.After(now); at, ok = timing.Next(at) {
			if paused.add(at); paused.Count == maxMissed {
				break
			}
		}
		if paused.Count > 0 {
			d.record(paused.tick(), now)
		}
		d.after.PausedAt, d.after.PauseNote, d.after.DecidedUntil = nil, "", now
		return nil
	})
}

// Trigger starts a run at once, whatever the time and even if the schedule is paused, and returns the tick. It fails
// with [schedule.ErrNotFound]; as [Scheduler.Put] does about the deployment; with a *[admin.QuotaError]; and with
// [entities.ErrConflict] if the last run has not ended and the schedule's overlap does not let another one start.
func (s *Scheduler) Trigger(ctx context.Context, p entities.Project, name string) (tick schedule.Tick, err error) {
	err = untilUnchanged(func() error {
		sched, err := schedule.ByName(ctx, pg.NewPool(s.pool), p, name)
		if err != nil {
			return err
		}
		f, err := s.facts(ctx, sched)
		if err != nil {
			return err
		}
		if f.run != nil && sched.Overlap != schedule.OverlapCancel && sched.Overlap != schedule.OverlapAllow {
			return fmt.Errorf("%w: run %s of the schedule has not ended, and its overlap is %q: "+
				"wait for the end of the run, or cancel it", entities.ErrConflict, f.run.ID, sched.Overlap)
		}
		d := decision{after: sched, start: -1}
		d.startOver(schedule.Tick{Kind: schedule.KindTrigger, At: f.now}, f)
		if err := s.startRun(ctx, sched, &d, byRequest(ctx, sched, admin.ActionScheduleTrigger)); err != nil {
			return err
		}
		tick = d.ticks[0]
		return nil
	})
	return tick, err
}

// Backfill starts a run for each tick from a time to another one in the past, except for those that have started one
// before; with repeat for those too. The runs follow each other, or are started at once if the schedule allows overlap.
// They do not count as overlap with other ticks.
//
// It fails with [entities.ErrInvalid] if there are no ticks or too many, with [schedule.ErrNotFound], and with
// [entities.ErrConflict] if the schedule is paused or another backfill is under way.
func (s *Scheduler) Backfill(
	ctx context.Context, p entities.Project, name string, from, to time.Time, repeat bool,
) (schedule.Schedule, error) {
	return s.changeNamed(ctx, p, name, admin.ActionScheduleBackfill, func(d *decision, now time.Time) error {
		timing, err := d.after.Timing()
		if err != nil {
			return err
		}
		from, to := from.UTC(), to.UTC()
		switch {
		case d.after.PausedAt != nil:
			return fmt.Errorf("%w: the schedule is paused: resume it first", entities.ErrConflict)
		case d.after.BackfillAt != nil:
			return fmt.Errorf("%w: a backfill is under way: wait for its end, or end it", entities.ErrConflict)
		case to.After(now):
			return entities.Invalid("to: %s is in the future, whose ticks start runs anyway", to.Format(time.RFC3339))
		}
		before := from.Add(-time.Millisecond)
		switch ticks := timing.Upcoming(before, schedule.MaxBackfill+1); {
		case len(ticks) == 0 || ticks[0].After(to):
			return entities.Invalid("from: the schedule has no tick from %s to %s",
				from.Format(time.RFC3339), to.Format(time.RFC3339))
		case len(ticks) > schedule.MaxBackfill && !ticks[schedule.MaxBackfill].After(to):
			return entities.Invalid("from: the schedule has more than %d ticks from then on: backfill them in parts",
				schedule.MaxBackfill)
		}
		d.after.BackfillAt, d.after.BackfillUntil, d.after.BackfillRepeat = &before, &to, repeat
		d.after.BackfillRunID = ""
		return nil
	})
}

// EndBackfill ends the backfill under way. The run that it has started last goes on. It fails with
// [schedule.ErrNotFound].
func (s *Scheduler) EndBackfill(ctx context.Context, p entities.Project, name string) (schedule.Schedule, error) {
	return s.changeNamed(ctx, p, name, admin.ActionScheduleBackfill, func(d *decision, _ time.Time) error {
		if d.after.BackfillAt == nil {
			return errNoChange
		}
		d.after.BackfillAt, d.after.BackfillUntil, d.after.BackfillRepeat = nil, nil, false
		return nil
	})
}
