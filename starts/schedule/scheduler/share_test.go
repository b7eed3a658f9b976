package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// TestSchedulesOfAProjectLeaveTurnsToOthers: a tick does not wait for hundreds of another project that are due before it.
func TestSchedulesOfAProjectLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	const flood, schedules = entities.Project("flood"), 200
	s := registered(t)
	if _, err := s.queue.PutDeployment(t.Context(), flood, "dpl", "http://127.0.0.1:1", "report"); err != nil {
		t.Fatal(err)
	}
	for i := range schedules {
		if _, _, err := s.Put(t.Context(), flood, fmt.Sprint("s-", i), hourly(overlap(schedule.OverlapAllow)).Spec); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t)
	var mu sync.Mutex
	var ticks []entities.Project
	d := s.queue.NewDrainer(queue.WorkerOptions{
		Deliveries: 10, MaxDeliveries: 10, BodyMemory: 1 << 20, Logger: slog.New(slog.DiscardHandler), Allowed: egress.Allowed{},
		Handlers: map[message.Work]queue.Handler{message.WorkSchedule: func(ctx context.Context, d queue.Delivery) error {
			mu.Lock()
			ticks = append(ticks, d.Project)
			mu.Unlock()
			return s.handle(ctx, d)
		}},
	})
	t.Cleanup(d.Stop)
	s.At(time.Hour)
	s.Exec(t, `UPDATE messages SET due_at = now() - CASE WHEN project = $1 THEN interval '1 minute' ELSE '0' END`, flood)
	run, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Run(t.Context(), time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	before := 0
	for before < len(ticks) && ticks[before] == flood {
		before++
	}
	if before > schedules/4 || len(ticks) != schedules+1 {
		t.Errorf("the tick waited for %d of %d ticks of another project; %d are decided", before, schedules, len(ticks))
	}
}
