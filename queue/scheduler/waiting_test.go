package scheduler

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/schedule"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestAllTicksWaitForTheirRuns, which follow each other in the order of the ticks.
func TestAllTicksWaitForTheirRuns(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	s.register(t)
	sched := s.put(t, overlap(schedule.OverlapWaitAll))
	for hour := range 4 {
		s.at(time.Duration(hour) * time.Hour)
		s.deliver(t, sched.ID)
	}
	list := s.wantTicks(t, "tick 13:00 started, tick 14:00 waiting, tick 15:00 waiting")
	s.end(t, list[0].RunID)
	s.at(3*time.Hour + time.Minute)
	s.deliver(t, sched.ID)
	list = s.wantTicks(t, "tick 13:00 started, tick 15:00 waiting, tick 14:00 started")
	s.deliver(t, sched.ID) // the run of 14:00 has not ended
	s.wantTicks(t, "tick 13:00 started, tick 15:00 waiting, tick 14:00 started")
	s.end(t, list[2].RunID)
	s.at(3*time.Hour + 2*time.Minute)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 13:00 started, tick 14:00 started, tick 15:00 started")
	if sched, _ := s.read(t); sched.WaitingAt != nil || len(sched.WaitingMore) != 0 {
		t.Errorf("%v and %v still wait", sched.WaitingAt, sched.WaitingMore)
	}
}

// TestWorkOfAScheduleEndsWithItsLastTick.
func TestWorkOfAScheduleEndsWithItsLastTick(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	s.register(t)
	sched := s.put(t, func(s *schedule.Schedule) {
		s.FromAt, s.UntilAt = new(noon.Add(90*time.Minute)), new(noon.Add(150*time.Minute))
	})
	s.at(time.Hour)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "")
	s.at(2 * time.Hour)
	s.deliver(t, sched.ID)
	s.wantTicks(t, "tick 14:00 started")
	if n := s.count(t, `SELECT count(*) FROM messages WHERE work = 'schedule'`); n != 0 {
		t.Errorf("%d pieces of work are left", n)
	}
	// A later end makes it tick again.
	spec := sched.Spec
	spec.UntilAt = new(noon.Add(5 * time.Hour))
	if changed, _, err := s.Put(t.Context(), project, "hourly", spec); err != nil || clock(*changed.NextAt) != "15:00" {
		t.Errorf("got %+v, %v", changed, err)
	}
}
