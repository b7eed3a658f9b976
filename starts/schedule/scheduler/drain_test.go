package scheduler

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// TestDrainsDecideTicks of a server in function mode, which does nothing between requests.
func TestDrainsDecideTicks(t *testing.T) {
	t.Parallel()
	s := registered(t)
	sched := s.put(t, overlap(schedule.OverlapAllow))
	d := s.queue.NewDrainer(queue.WorkerOptions{
		Deliveries: 10, MaxDeliveries: 10, BodyMemory: 1 << 20, Logger: slog.New(slog.DiscardHandler), Allowed: egress.Allowed{},
		Handlers: map[message.Work]queue.Handler{message.WorkSchedule: s.Handler()},
	})
	t.Cleanup(d.Stop)
	drain := func() queue.Drained {
		t.Helper()
		run, err := d.StartDrain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done, err := run.Run(t.Context(), 30*time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if got := drain(); got.Failed != 0 || got.NextDueAt == nil || !got.NextDueAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("the next message is due at %v, want the next tick; %d deliveries failed", got.NextDueAt, got.Failed)
	}
	s.wantTicks(t, "")
	s.At(time.Hour)
	// The database's clock is not at the tick yet.
	s.Exec(t, `UPDATE messages SET due_at = now() WHERE subject = $1`, sched.ID)
	drain()
	s.wantTicks(t, "tick 13:00 started")
}
