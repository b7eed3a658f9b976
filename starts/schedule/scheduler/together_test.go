package scheduler

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// eventually waits until the condition holds, for as long as a busy machine may take.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, ticker := time.After(3*time.Minute), time.NewTicker(5*time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not: %s", what)
		}
	}
}

// TestTicksAtTheSameMomentShareCommits: the run of each takes one statement, with its tick, the schedule and the work,
// and those that meet are committed together.
func TestTicksAtTheSameMomentShareCommits(t *testing.T) {
	t.Parallel()
	const schedules = 64
	s := registered(t)
	var deliveries []queue.Delivery
	for i := range schedules {
		sched, _, err := s.Put(t.Context(), project, fmt.Sprint("s-", i), hourly().Spec)
		if err != nil {
			t.Fatal(err)
		}
		deliveries = append(deliveries, s.claim(t, sched.ID))
	}
	s.At(time.Hour)
	resume := s.queue.Group().Pause()
	var ticks sync.WaitGroup
	for _, d := range deliveries {
		ticks.Go(func() {
			if err := s.handle(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait for a commit", func() bool {
		_, waiting := s.queue.Group().Load()
		return waiting == schedules
	})
	resume()
	ticks.Wait()
	for what, count := range map[string]int{
		"runs": schedules, "schedule_ticks WHERE decision = 'started'": schedules,
		"(SELECT DISTINCT xid FROM events) AS commits":                       schedules / 32,
		"(SELECT DISTINCT xmin::text FROM schedules) AS commits":             schedules / 32,
		"messages WHERE work = 'schedule' AND lease = '' AND due_at > now()": schedules,
	} {
		if n := s.Count(t, `SELECT count(*) FROM `+what); n != count {
			t.Errorf("got %d %s, want %d", n, what, count)
		}
	}
}

// TestTickIsNotDecidedWithoutItsGuards: nothing is written for a schedule that has changed, or under a lease that is
// lost.
func TestTickIsNotDecidedWithoutItsGuards(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.put(t)
	s.At(time.Hour)
	read, _ := s.read(t)
	timing, err := read.Timing()
	if err != nil {
		t.Fatal(err)
	}
	for guard, broken := range map[string]struct {
		sql  string
		want error
	}{
		"revision": {`UPDATE schedules SET revision = revision + 1`, schedule.ErrChanged},
		"lease":    {`UPDATE messages SET lease = 'rh_other' WHERE work = 'schedule'`, message.ErrStale},
		"time":     {`UPDATE messages SET due_at = now() WHERE work = 'schedule'`, message.ErrStale},
	} {
		read, _ = s.read(t)
		d := s.claim(t, read.ID)
		s.Exec(t, broken.sql)
		err := s.write(t.Context(), read, decide(read, timing, facts{now: noon.Add(time.Hour)}), byDelivery(d))
		if !errors.Is(err, broken.want) {
			t.Errorf("%s: got %v, want %v", guard, err, broken.want)
		}
		s.wantTicks(t, "")
	}
	s.deliver(t, read.ID)
	s.wantTicks(t, "tick 13:00 started")
}
