package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestTicksThatALimitRefuses has a limit that is paused, and so refuses, and then one that is gone.
func TestTicksThatALimitRefuses(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	s.register(t)
	sched := s.put(t)
	s.exec(t, `
		INSERT INTO limits (project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at)
		VALUES ($1, 'one', 0, 1, 0, '0', 0, false, 'reject', true, now(), now())`, project)
	s.exec(t, `
		INSERT INTO policies (project, workflow, limits, priority, created_at, updated_at)
		VALUES ($1, $2, '[{"name": "one"}]', '0', now(), now())`, project, sched.Workflow)
	s.at(time.Hour)
	s.deliver(t, sched.ID)
	s.exec(t, `DELETE FROM limits`)
	s.at(2 * time.Hour)
	s.deliver(t, sched.ID)
	list := s.wantTicks(t, "tick 13:00 refused, tick 14:00 refused")
	if !strings.Contains(list[0].Reason, "no slot") || !strings.Contains(list[1].Reason, "limit one: limit not found") {
		t.Errorf("got the reasons %q and %q", list[0].Reason, list[1].Reason)
	}
}
