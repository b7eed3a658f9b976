package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

const (
	// maxMissed is how many ticks older than the window are counted; a higher number says at least so many.
	maxMissed = 10_000
	// Whether a run has ended that a tick waits for is read after a tenth of the time that it has taken so far.
	minCheck = time.Second
	maxCheck = time.Minute
)

// facts are what a decision depends on, besides the schedule itself.
type facts struct {
	now time.Time
	// run is the last run of the schedule, and backfilled that of its backfill; nil if there is none or it has ended.
	run, backfilled *entities.Run
	// started has the ticks of the backfill under way that have started a run before.
	started []schedule.Tick
}

// decision is what happens to a schedule in one transaction.
type decision struct {
	// after is the schedule with its new state, and ticks what is recorded.
	after schedule.Schedule
	ticks []schedule.Tick
	// start is the index of the tick that starts a run; -1 if none does.
	start int
	// cancel is the run that gives way to it; nil for none.
	cancel *entities.Run
	// due is when there is something to decide again; zero for never.
	due time.Time
}

// decide decides what is due: the tick that waits, then those of the schedule, then one of the backfill. A decision
// starts one run at most. It is pure.
func decide(s schedule.Schedule, timing schedule.Timing, f facts) decision {
	d := decision{after: s, start: -1}
	if s.PausedAt == nil && !d.startWaiting(f) && !d.decideDue(timing, f) {
		d.continueBackfill(timing, f)
	}
	d.plan(timing, f)
	return d
}

// record adds what was decided about a tick.
func (d *decision) record(t schedule.Tick, now time.Time) {
	d.after.Ticks++
	t.Seq, t.DecidedAt = d.after.Ticks, now
	if t.Count == 0 {
		t.Count, t.LastAt = 1, t.At
	}
	d.ticks = append(d.ticks, t)
}

// startRun records a tick that starts a run.
func (d *decision) startRun(t schedule.Tick, now time.Time) {
	t.Decision = schedule.Started
	d.record(t, now)
	d.start = len(d.ticks) - 1
}

// startWaiting starts the run of the tick that waits, and reports whether it did.
func (d *decision) startWaiting(f facts) bool {
	if d.after.WaitingAt == nil || f.run != nil {
		return false
	}
	d.startRun(schedule.Tick{Kind: schedule.KindTick, At: *d.after.WaitingAt}, f.now)
	d.after.WaitingAt = nil
	if more := d.after.WaitingMore; len(more) > 0 {
		d.after.WaitingAt, d.after.WaitingMore = &more[0], more[1:]
	}
	return true
}

// decideDue decides about the ticks that are due, and reports whether there was one. Those that are too late are
// missed.
func (d *decision) decideDue(timing schedule.Timing, f facts) bool {
	s, oldest := &d.after, f.now.Add(-d.after.CatchUpWindow)
	late := missed{reason: "older than the catch-up window of " + s.CatchUpWindow.String()}
	superseded := missed{reason: "a later tick was due as well"}
	var tick time.Time
	for tick.IsZero() || s.CatchUp == schedule.CatchUpLatest {
		at, ok := timing.Next(s.DecidedUntil)
		if !ok || s.StartsAt(at).After(f.now) {
			break
		}
		s.DecidedUntil = at
		switch {
		case at.Before(oldest):
			if late.add(at); late.Count == maxMissed {
				s.DecidedUntil = oldest.Add(-time.Millisecond) // count no further
			}
		case tick.IsZero():
			tick = at
		default:
			superseded.add(tick)
			tick = at
		}
	}
	for _, m := range []missed{late, superseded} {
		if m.Count > 0 {
			d.record(m.tick(), f.now)
		}
	}
	if !tick.IsZero() {
		d.apply(tick, f)
	}
	return len(d.ticks) > 0
}

// apply decides about a tick that is in time, by whether the last run has ended.
func (d *decision) apply(at time.Time, f facts) {
	t := schedule.Tick{Kind: schedule.KindTick, At: at}
	switch s := &d.after; {
	case s.WaitingAt != nil && s.Overlap == schedule.OverlapWaitAll && len(s.WaitingMore) < schedule.MaxWaiting-1:
		t.Decision, t.RunID, t.Reason = schedule.Waiting, s.RunID, "other ticks wait before it"
		s.WaitingMore = append(slices.Clip(s.WaitingMore), at)
		d.record(t, f.now)
	case s.WaitingAt != nil && s.Overlap == schedule.OverlapWaitAll:
		t.Decision, t.RunID = schedule.Skipped, s.RunID
		t.Reason = fmt.Sprintf("%d other ticks wait for the end of the run", schedule.MaxWaiting)
		d.record(t, f.now)
	case s.WaitingAt != nil:
		t.Decision, t.RunID, t.Reason = schedule.Skipped, s.RunID, "another tick waits for the end of the run"
		d.record(t, f.now)
	case f.run != nil && s.Overlap == schedule.OverlapSkip:
		t.Decision, t.RunID, t.Reason = schedule.Skipped, f.run.ID, "the run has not ended"
		d.record(t, f.now)
	case f.run != nil && (s.Overlap == schedule.OverlapWait || s.Overlap == schedule.OverlapWaitAll):
		t.Decision, t.RunID, t.Reason = schedule.Waiting, f.run.ID, "the run has not ended"
		s.WaitingAt = &at
		d.record(t, f.now)
	default:
		d.startOver(t, f)
	}
}

// startOver starts a run, and cancels the one before if the overlap says so.
func (d *decision) startOver(t schedule.Tick, f facts) {
	if f.run != nil && d.after.Overlap == schedule.OverlapCancel {
		d.cancel = f.run
		t.Reason = "run " + string(f.run.ID) + " was cancelled"
	}
	d.startRun(t, f.now)
}

// missed are ticks in a row that start nothing.
type missed struct {
	schedule.Tick
	reason string
}

func (m *missed) add(at time.Time) {
	if m.Count == 0 {
		m.At = at
	}
	m.Count++
	m.LastAt = at
}

func (m *missed) tick() schedule.Tick {
	t := m.Tick
	t.Kind, t.Decision, t.Reason = schedule.KindTick, schedule.Missed, m.reason
	return t
}

// continueBackfill starts the next run of the backfill when the one before has ended. Ticks that have started a run
// before are left out unless the backfill repeats them.
func (d *decision) continueBackfill(timing schedule.Timing, f facts) {
	s := &d.after
	if s.BackfillAt == nil || f.backfilled != nil && s.Overlap != schedule.OverlapAllow {
		return
	}
	done := map[int64]bool{}
	for _, t := range f.started {
		done[t.At.UnixMilli()] = !s.BackfillRepeat
	}
	at, ok := timing.Next(*s.BackfillAt)
	for ok && done[at.UnixMilli()] {
		at, ok = timing.Next(at)
	}
	if !ok || at.After(*s.BackfillUntil) {
		s.BackfillAt, s.BackfillUntil, s.BackfillRepeat = nil, nil, false
		return
	}
	s.BackfillAt = &at
	d.startRun(schedule.Tick{Kind: schedule.KindBackfill, At: at}, f.now)
}

// plan sets the next tick, and when there is something to decide again.
func (d *decision) plan(timing schedule.Timing, f facts) {
	s := &d.after
	s.NextAt = nil
	if s.PausedAt != nil {
		return
	}
	if next, ok := timing.Next(s.DecidedUntil); ok {
		s.NextAt = &next
		d.due = s.StartsAt(next)
	}
	if s.WaitingAt != nil {
		d.checkAt(f.now, f.run)
	}
	switch {
	case s.BackfillAt != nil && s.Overlap == schedule.OverlapAllow:
		d.due = f.now
	case s.BackfillAt != nil:
		d.checkAt(f.now, f.backfilled)
	}
}

// checkAt has the end of a run read after a tenth of the time that the run has taken.
func (d *decision) checkAt(now time.Time, run *entities.Run) {
	pause := minCheck
	if run != nil {
		pause = min(max(now.Sub(run.CreatedAt)/10, minCheck), maxCheck)
	}
	if at := now.Add(pause); d.due.IsZero() || at.Before(d.due) {
		d.due = at
	}
}
