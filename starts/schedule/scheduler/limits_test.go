package scheduler

import (
	"strings"
	"testing"
	"time"
)

// TestTicksThatALimitRefuses has a limit that is paused, and so refuses, and then one that is gone.
func TestTicksThatALimitRefuses(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t)
	s.Exec(t, `
		INSERT INTO limits (project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at)
		VALUES ($1, 'one', 0, 1, 0, '0', 0, false, 'reject', true, now(), now())`, project)
	s.Exec(t, `
		INSERT INTO policies (project, workflow, limits, priority, created_at, updated_at)
		VALUES ($1, $2, '[{"name": "one"}]', '0', now(), now())`, project, sched.Workflow)
	s.At(time.Hour)
	s.deliver(t, sched.ID)
	s.Exec(t, `DELETE FROM limits`)
	s.At(2 * time.Hour)
	s.deliver(t, sched.ID)
	list := s.wantTicks(t, "tick 13:00 refused, tick 14:00 refused")
	if !strings.Contains(list[0].Reason, "no slot") || !strings.Contains(list[1].Reason, "limit one: limit not found") {
		t.Errorf("got the reasons %q and %q", list[0].Reason, list[1].Reason)
	}
}
