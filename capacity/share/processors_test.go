package share_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/capacity/share"
)

// TestLargeValuesHaveHalfOfTheProcessors: however many goroutines have large values. Small ones wait for nobody.
func TestLargeValuesHaveHalfOfTheProcessors(t *testing.T) {
	t.Parallel()
	p := share.NewProcessors(4)
	var working, most atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		ctx := share.For(t.Context(), []string{"a", "b", "c"}[i%3])
		all.Go(func() {
			err := p.Use(ctx, 1<<20, func() error {
				most.Store(max(most.Load(), working.Add(1)))
				defer working.Add(-1)
				return p.Use(ctx, 100, func() error { return nil })
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n < 1 || n > 2 {
		t.Errorf("%d large values were worked with at once, want at most 2", n)
	}
}

// TestLargeValuesOfAProjectDoNotBlockOthers: a project that waits has the next slot, however many another one awaits.
func TestLargeValuesOfAProjectDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	p := share.NewProcessors(2)
	release := make(chan struct{})
	began := make(chan string, 10)
	use := func(key string, wait bool) <-chan error {
		done := make(chan error, 1)
		go func() {
			done <- p.Use(share.For(t.Context(), key), 1<<20, func() error {
				began <- key
				if wait {
					<-release
				}
				return nil
			})
		}()
		return done
	}
	holds := use("a", true)
	<-began
	ctx, cancel := context.WithCancel(share.For(t.Context(), "b"))
	cancel()
	if err := p.Use(ctx, 1<<20, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a project whose context has ended: got %v", err)
	}
	var waiting []<-chan error
	for range 5 {
		waiting = append(waiting, use("a", false))
	}
	other := use("b", false)
	close(release)
	for _, done := range append(waiting, holds, other) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
