package scheduler

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// continues has a run continue as another one, and returns that.
func (s *server) continues(t *testing.T, id entities.RunID) entities.RunID {
	t.Helper()
	next := eventlog.NewRun(s.Log.Now(), nil, entities.EventData{DeploymentID: "dpl", WorkflowName: "report"})
	if _, err := s.Log.AppendAll(t.Context(), project, id, []eventlog.Request{
		{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven},
		{
			Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven,
			Continue: &eventlog.Continuation{Next: next},
		},
	}, eventlog.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	return next.RunID
}

// TestOverlapWithARunThatHasContinued, of which retention has deleted the first part.
func TestOverlapWithARunThatHasContinued(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, overlap(schedule.OverlapSkip))
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	_, list := s.read(t)
	last := list[0].RunID
	for range 2 {
		last = s.continues(t, last)
	}
	s.Exec(t, `DELETE FROM runs WHERE completed_at IS NOT NULL`)
	s.At(2 * time.Hour)
	s.deliver(t, sched.ID)
	if _, list = s.read(t); decisions(list) != "tick 13:00 started, tick 14:00 skipped" || list[1].RunID != last {
		t.Errorf("got %s, because of run %s; want run %s", decisions(list), list[1].RunID, last)
	}
	s.end(t, last)
	s.At(3 * time.Hour)
	s.deliver(t, sched.ID)
	if _, list = s.read(t); decisions(list) != "tick 13:00 started, tick 14:00 skipped, tick 15:00 started" {
		t.Errorf("got %s", decisions(list))
	}
}

// TestBackfillWaitsForARunThatHasContinued, of which retention has deleted the first part.
func TestBackfillWaitsForARunThatHasContinued(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, overlap(schedule.OverlapSkip))
	if _, err := s.Backfill(t.Context(), project, "hourly", noon.Add(-2*time.Hour), noon.Add(-time.Hour), false); err != nil {
		t.Fatal(err)
	}
	s.deliver(t, sched.ID)
	_, list := s.read(t)
	last := s.continues(t, list[0].RunID)
	s.Exec(t, `DELETE FROM runs WHERE completed_at IS NOT NULL`)
	s.deliver(t, sched.ID)
	if _, list = s.read(t); decisions(list) != "backfill 10:00 started" {
		t.Errorf("got %s", decisions(list))
	}
	s.end(t, last)
	s.deliver(t, sched.ID)
	if _, list = s.read(t); decisions(list) != "backfill 10:00 started, backfill 11:00 started" {
		t.Errorf("got %s", decisions(list))
	}
}
