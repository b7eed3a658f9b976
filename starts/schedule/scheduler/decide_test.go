package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// hourly returns a schedule that ticks every hour and has decided everything up to noon.
func hourly(edit ...func(*schedule.Schedule)) schedule.Schedule {
	s := schedule.Schedule{
		Spec: schedule.Spec{
			Every: time.Hour, Workflow: "report", Overlap: schedule.OverlapSkip, CatchUp: schedule.CatchUpLatest,
			CatchUpWindow: 24 * time.Hour,
		},
		ID: "sched_1", Name: "hourly", DecidedUntil: noon, RunID: "wrun_last",
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func overlap(o schedule.Overlap) func(*schedule.Schedule) {
	return func(s *schedule.Schedule) { s.Overlap = o }
}

// openRun returns a run that has lasted for an hour at 13:00.
func openRun(id entities.RunID) *entities.Run { return &entities.Run{ID: id, CreatedAt: noon} }

// clock returns a time of the day as 15:04, with the day before it if that is another one.
func clock(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.UTC().Day() == noon.Day() && t.UTC().Month() == noon.Month():
		return t.UTC().Format("15:04")
	default:
		return t.UTC().Format("02T15:04")
	}
}

// describe returns what was decided, what is started and cancelled, and when there is something to decide again.
func describe(d decision) string {
	var b strings.Builder
	for i, t := range d.ticks {
		fmt.Fprintf(&b, "%s %s %s", t.Kind, clock(t.At), t.Decision)
		if t.Count > 1 {
			fmt.Fprintf(&b, " to %s (%d)", clock(t.LastAt), t.Count)
		}
		if i == d.start {
			b.WriteString("!")
		}
		b.WriteString(", ")
	}
	if d.cancel != nil {
		fmt.Fprintf(&b, "cancel %s, ", d.cancel.ID)
	}
	fmt.Fprintf(&b, "due %s", clock(d.due))
	return b.String()
}

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(hour, minute int) time.Time { return time.Date(2027, 3, 1, hour, minute, 0, 0, time.UTC) }
	all := func(s *schedule.Schedule) { s.CatchUp = schedule.CatchUpAll }
	waits := func(s *schedule.Schedule) { s.WaitingAt = new(at(12, 0)) }
	many := func(s *schedule.Schedule) { s.WaitingMore = make([]time.Time, schedule.MaxWaiting-1) }
	until := func(s *schedule.Schedule) { s.UntilAt = new(at(14, 0)) }
	for name, tt := range map[string]struct {
		schedule schedule.Schedule
		now      time.Time
		run      *entities.Run
		want     string
	}{
		"too early":         {hourly(), at(12, 59), nil, "due 13:00"},
		"in time":           {hourly(), at(13, 0), nil, "tick 13:00 started!, due 14:00"},
		"paused":            {hourly(func(s *schedule.Schedule) { s.PausedAt = &noon }), at(13, 0), nil, "due never"},
		"skip":              {hourly(), at(13, 0), openRun("wrun_last"), "tick 13:00 skipped, due 14:00"},
		"allow":             {hourly(overlap("allow")), at(13, 0), openRun("wrun_last"), "tick 13:00 started!, due 14:00"},
		"cancel":            {hourly(overlap("cancel")), at(13, 0), openRun("wrun_last"), "tick 13:00 started!, cancel wrun_last, due 14:00"},
		"nothing to cancel": {hourly(overlap("cancel")), at(13, 0), nil, "tick 13:00 started!, due 14:00"},
		// The end of a run of an hour is read after a minute at most.
		"wait":                       {hourly(overlap("wait")), at(13, 0), openRun("wrun_last"), "tick 13:00 waiting, due 13:01"},
		"one waits already":          {hourly(overlap("wait"), waits), at(13, 0), openRun("wrun_last"), "tick 13:00 skipped, due 13:01"},
		"still waits":                {hourly(overlap("wait"), waits), at(12, 30), openRun("wrun_last"), "due 12:31"},
		"has waited":                 {hourly(overlap("wait"), waits), at(12, 30), nil, "tick 12:00 started!, due 13:00"},
		"waits, overlap is now skip": {hourly(waits), at(12, 30), nil, "tick 12:00 started!, due 13:00"},
		"wait, all":                  {hourly(overlap("waitAll")), at(13, 0), openRun("wrun_last"), "tick 13:00 waiting, due 13:01"},
		"another one waits":          {hourly(overlap("waitAll"), waits), at(13, 0), openRun("wrun_last"), "tick 13:00 waiting, due 13:01"},
		"as many wait as may":        {hourly(overlap("waitAll"), waits, many), at(13, 0), openRun("wrun_last"), "tick 13:00 skipped, due 13:01"},
		"before its time":            {hourly(func(s *schedule.Schedule) { s.FromAt = new(at(14, 0)) }), at(13, 0), nil, "due 14:00"},
		"its last tick":              {hourly(until), at(14, 0), nil, "tick 13:00 missed, tick 14:00 started!, due never"},
		"after its time":             {hourly(until, func(s *schedule.Schedule) { s.DecidedUntil = at(14, 0) }), at(15, 0), nil, "due never"},
		"three are late":             {hourly(), at(15, 30), nil, "tick 13:00 missed to 14:00 (2), tick 15:00 started!, due 16:00"},
		"three are late, all":        {hourly(all), at(15, 30), nil, "tick 13:00 started!, due 14:00"},
		"three days late": {
			hourly(), noon.AddDate(0, 0, 3).Add(time.Minute), nil,
			"tick 13:00 missed to 03T12:00 (48), tick 03T13:00 missed to 04T11:00 (23), tick 04T12:00 started!, due 04T13:00",
		},
		"three days late, all": {
			hourly(all), noon.AddDate(0, 0, 3).Add(time.Minute), nil,
			"tick 13:00 missed to 03T12:00 (48), tick 03T13:00 started!, due 03T14:00",
		},
		"late while a run is open": {
			hourly(), at(15, 30), openRun("wrun_last"), "tick 13:00 missed to 14:00 (2), tick 15:00 skipped, due 16:00",
		},
		"a short window": {
			hourly(func(s *schedule.Schedule) { s.CatchUpWindow = time.Minute }), at(13, 2), nil, "tick 13:00 missed, due 14:00",
		},
		"years late": {
			hourly(func(s *schedule.Schedule) { s.Every = time.Minute; s.CatchUpWindow = time.Hour }),
			noon.AddDate(0, 1, 0), nil,
			"tick 12:01 missed to 08T10:40 (10000), tick 01T11:00 missed to 01T11:59 (60), tick 01T12:00 started!, due 01T12:01",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timing, err := tt.schedule.Timing()
			if err != nil {
				t.Fatal(err)
			}
			d := decide(tt.schedule, timing, facts{now: tt.now, run: tt.run})
			if got := describe(d); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if d.after.Ticks != tt.schedule.Ticks+int64(len(d.ticks)) {
				t.Errorf("%d ticks are counted, want %d more than %d", d.after.Ticks, len(d.ticks), tt.schedule.Ticks)
			}
		})
	}
}

// TestTicksAreDecidedOnce decides again and again at random intervals, and requires that each tick is in one decision.
func TestTicksAreDecidedOnce(t *testing.T) {
	t.Parallel()
	for _, catchUp := range []schedule.CatchUp{schedule.CatchUpLatest, schedule.CatchUpAll} {
		s := hourly(func(s *schedule.Schedule) {
			s.CatchUp, s.Every, s.Jitter = catchUp, 10*time.Minute, 9*time.Minute
			s.CatchUpWindow = 2 * time.Hour
		})
		timing, err := s.Timing()
		if err != nil {
			t.Fatal(err)
		}
		last := noon
		for now, step := noon, 0; step < 2000; step++ {
			now = now.Add(time.Duration(step*step*7919%10_000) * time.Second)
			d := decide(s, timing, facts{now: now})
			for _, tick := range d.ticks {
				for range tick.Count {
					last = last.Add(10 * time.Minute)
				}
				if !tick.LastAt.Equal(last) {
					t.Fatalf("%s: the tick of %s was decided after %s", catchUp, tick.LastAt, last)
				}
				if s.StartsAt(tick.LastAt).After(now) {
					t.Fatalf("%s: the tick of %s was decided at %s", catchUp, tick.LastAt, now)
				}
			}
			s = d.after
		}
		if s.Ticks < 1000 {
			t.Errorf("%s: only %d decisions", catchUp, s.Ticks)
		}
	}
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	before, until := noon.Add(-4*time.Hour), noon.Add(-time.Hour) // 09:00, 10:00, 11:00
	fill := func(s *schedule.Schedule) { s.BackfillAt, s.BackfillUntil = &before, &until }
	for name, tt := range map[string]struct {
		schedule schedule.Schedule
		facts    facts
		want     string
	}{
		"first": {hourly(fill), facts{}, "backfill 09:00 started!, due 12:30"},
		"one has started before": {
			hourly(fill), facts{started: []schedule.Tick{{At: noon.Add(-3 * time.Hour)}}}, "backfill 10:00 started!, due 12:30",
		},
		"repeat": {
			hourly(fill, func(s *schedule.Schedule) { s.BackfillRepeat = true }),
			facts{started: []schedule.Tick{{At: noon.Add(-3 * time.Hour)}}}, "backfill 09:00 started!, due 12:30",
		},
		"the one before is under way": {hourly(fill), facts{backfilled: openRun("wrun_1")}, "due 12:31"},
		"overlap is allowed": {
			hourly(fill, overlap("allow")), facts{backfilled: openRun("wrun_1")}, "backfill 09:00 started!, due 12:30",
		},
		"the last run of a tick does not matter": {
			hourly(fill), facts{run: openRun("wrun_last")}, "backfill 09:00 started!, due 12:30",
		},
		"over": {hourly(fill, func(s *schedule.Schedule) { s.BackfillAt = &until }), facts{}, "due 13:00"},
		"ticks go first": {
			hourly(fill, func(s *schedule.Schedule) { s.DecidedUntil = noon.Add(-time.Hour) }), facts{},
			"tick 12:00 started!, due 12:30",
		},
	} {
		timing, err := tt.schedule.Timing()
		if err != nil {
			t.Fatal(err)
		}
		tt.facts.now = noon.Add(30 * time.Minute)
		if got := describe(decide(tt.schedule, timing, tt.facts)); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// TestWaitingTicksStartInTheirOrder, one after the other.
func TestWaitingTicksStartInTheirOrder(t *testing.T) {
	t.Parallel()
	s := hourly(overlap("waitAll"))
	timing, err := s.Timing()
	if err != nil {
		t.Fatal(err)
	}
	for hour := 1; hour <= 3; hour++ {
		s = decide(s, timing, facts{now: noon.Add(time.Duration(hour) * time.Hour), run: openRun("wrun_last")}).after
	}
	now := noon.Add(3*time.Hour + time.Minute)
	var got []string
	for s.WaitingAt != nil {
		d := decide(s, timing, facts{now: now})
		got, s = append(got, describe(d)), d.after
	}
	// The next one is read after a second, when the run has begun.
	want := []string{
		"tick 13:00 started!, due 15:01", "tick 14:00 started!, due 15:01", "tick 15:00 started!, due 16:00",
	}
	if diff := strings.Join(got, "; "); diff != strings.Join(want, "; ") {
		t.Errorf("got  %s\nwant %s", diff, strings.Join(want, "; "))
	}
}
