package fair

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestOneProjectLeavesPlaces: however many operations a project has, another one gets a place at once.
func TestOneProjectLeavesPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(3, 2, time.Now)
		release := make(chan struct{})
		var running, most atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_ = s.Do(t.Context(), "greedy", func() error {
					most.Store(max(most.Load(), running.Add(1)))
					<-release
					running.Add(-1)
					return nil
				})
			})
		}
		synctest.Wait()
		failed := errors.New("its own error")
		if err := s.Do(t.Context(), "other", func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got error %v, want %v", err, failed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Do(ctx, "greedy", func() error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v for an operation that was cancelled while it waited", err)
		}
		close(release)
		wg.Wait()
		if most.Load() != 2 || len(s.projects) != 0 {
			t.Errorf("%d operations of a project ran at once, want 2; %d projects are left", most.Load(), len(s.projects))
		}
	})
}

// TestIdleTime: a project's place stays empty for a time after each operation; others can use it.
func TestIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(2, 1, time.Now)
		s.Idle = 2
		start := time.Now()
		second := func() error {
			time.Sleep(time.Second)
			return nil
		}
		for _, c := range []struct {
			project entities.Project
			want    time.Duration // since the start, at the end
		}{
			{"busy", time.Second}, {"other", 2 * time.Second}, {"busy", 4 * time.Second}, {"busy", 7 * time.Second},
		} {
			if err := s.Do(t.Context(), c.project, second); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != c.want {
				t.Errorf("an operation of %s ended after %s, want %s", c.project, got, c.want)
			}
		}
		time.Sleep(time.Minute)
		if len(s.projects) != 0 {
			t.Errorf("%d projects are left", len(s.projects))
		}
	})
}

// TestWaitingProjectsTakeTurns: a project that arrives late waits for few operations of one that arrived early.
func TestWaitingProjectsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1, time.Now)
		var order []entities.Project // changed only by the one operation that has the place
		begin := make(chan struct{})
		var wg sync.WaitGroup
		start := func(p entities.Project) {
			wg.Go(func() {
				_ = s.Do(t.Context(), p, func() error {
					<-begin
					order = append(order, p)
					return nil
				})
			})
		}
		for range 10 {
			start("greedy")
		}
		synctest.Wait()
		start("late")
		synctest.Wait()
		close(begin)
		wg.Wait()
		if order[0] != "late" && order[1] != "late" {
			t.Errorf("the order is %v, want the late project first or second", order)
		}
	})
}
