package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// TestAllTicksWaitForTheirRuns, which follow each other in the order of the ticks.
func TestAllTicksWaitForTheirRuns(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, overlap(schedule.OverlapWaitAll))
	for hour := range 4 {
		s.At(time.Duration(hour) * time.Hour)
		s.deliver(t, sched.ID)
	}
	list := s.wantTicks(t, "tick 13:00 started, tick 14:00 waiting, tick 15:00 waiting")
	s.end(t, list[0].RunID)
	s.At(3*time.Hour + time.Minute)
	s.deliver(t, sched.ID)
	list = s.wantTicks(t, "tick 13:00 started, tick 15:00 waiting, tick 14:00 started")
	s.deliver(t, sched.ID) // the run of 14:00 has not ended
	s.wantTicks(t, "tick 13:00 started, tick 15:00 waiting, tick 14:00 started")
	s.end(t, list[2].RunID)
	s.At(3*time.Hour + 2*time.Minute)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 13:00 started, tick 14:00 started, tick 15:00 started")
	if sched, _ := s.read(t); sched.WaitingAt != nil || len(sched.WaitingMore) != 0 {
		t.Errorf("%v and %v still wait", sched.WaitingAt, sched.WaitingMore)
	}
}

// TestWorkOfAScheduleEndsWithItsLastTick.
func TestWorkOfAScheduleEndsWithItsLastTick(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, func(s *schedule.Schedule) {
		s.FromAt, s.UntilAt = new(noon.Add(90*time.Minute)), new(noon.Add(150*time.Minute))
	})
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "")
	s.At(2 * time.Hour)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 14:00 started")
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'schedule'`); n != 0 {
		t.Errorf("%d pieces of work are left", n)
	}
	// A later end makes it tick again.
	spec := sched.Spec
	spec.UntilAt = new(noon.Add(5 * time.Hour))
	if changed, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil || clock(*changed.NextAt) != "15:00" {
		t.Errorf("got %+v, %v", changed, err)
	}
}

// TestOtherOverlapDropsWhatWaits: the ticks are skipped, and nothing starts when the run has ended.
func TestOtherOverlapDropsWhatWaits(t *testing.T) {
	t.Parallel()
	for to, want := range map[schedule.Overlap]string{
		schedule.OverlapWaitAll: "tick 13:00 started, tick 14:00 waiting, tick 15:00 waiting",
		schedule.OverlapWait:    "tick 13:00 started, tick 14:00 waiting, tick 15:00 skipped",
		schedule.OverlapSkip:    "tick 13:00 started, tick 14:00 skipped, tick 15:00 skipped",
	} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testdb.New(t))
			s.Register(t, "report")
			sched := s.put(t, overlap(schedule.OverlapWaitAll))
			for hour := range 4 {
				s.At(time.Duration(hour) * time.Hour)
				s.deliver(t, sched.ID)
			}
			spec := sched.Spec
			spec.Overlap, spec.Jitter = to, time.Second // another change, so that there is one in each case
			if _, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil {
				t.Fatal(err)
			}
			s.wantTicks(t, want)
			if sched, _ := s.read(t); (sched.WaitingAt != nil) != strings.Contains(want, "14:00 waiting") ||
				(len(sched.WaitingMore) > 0) != (to == schedule.OverlapWaitAll) {
				t.Errorf("%v and %v wait", sched.WaitingAt, sched.WaitingMore)
			}
		})
	}
}

// TestLaterEndKeepsWhatIsDue: the tick of 13:00 is due and undecided. Those between the old end and now are no ticks.
func TestLaterEndKeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, func(s *schedule.Schedule) { s.UntilAt = new(noon.Add(90 * time.Minute)) })
	s.At(61 * time.Minute)
	spec := sched.Spec
	spec.UntilAt = new(noon.Add(5 * time.Hour))
	if _, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil {
		t.Fatal(err)
	}
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 13:00 started")
	s.At(5*time.Hour + time.Minute)
	s.deliver(t, sched.ID)
	list, _ := s.read(t)
	spec.UntilAt = nil
	s.At(9 * time.Hour)
	if changed, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil || clock(*changed.NextAt) != "22:00" {
		t.Errorf("after %v: got %+v, %v; want that nothing between the old end and now is a tick", list.DecidedUntil, changed, err)
	}
}
