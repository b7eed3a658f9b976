package coalesce

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRacersShareARead, and those who come later, until the answer is too old.
func TestRacersShareARead(t *testing.T) {
	t.Parallel()
	r := New[string, int64](time.Hour, time.Now)
	var reads atomic.Int64
	read := func() (int64, error) { return reads.Add(1), nil } //nolint:unparam // as reads are
	var racers sync.WaitGroup
	for range 32 {
		racers.Go(func() {
			if v, err := r.Get(t.Context(), "one", read); v != 1 || err != nil {
				t.Errorf("got %d, %v", v, err)
			}
		})
	}
	racers.Wait()
	if v, err := r.Get(t.Context(), "two", read); v != 2 || err != nil {
		t.Errorf("another key: got %d, %v", v, err)
	}
	r.answers["one"].began = time.Now().Add(-2 * time.Hour)
	if v, err := r.Get(t.Context(), "one", read); v != 3 || err != nil {
		t.Errorf("later: got %d, %v", v, err)
	}
}

// TestFailuresAreNotShared, and leave nothing.
func TestFailuresAreNotShared(t *testing.T) {
	t.Parallel()
	r := New[string, int](time.Hour, time.Now)
	failed := errors.New("failed")
	if _, err := r.Get(t.Context(), "one", func() (int, error) { return 0, failed }); !errors.Is(err, failed) || len(r.answers) > 0 {
		t.Errorf("got error %v, %d answers", err, len(r.answers))
	}
	if v, err := r.Get(t.Context(), "one", func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
}

// TestCallersLeave: who leaves does not wait for the read of another.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	r := New[string, int](time.Hour, time.Now)
	began, end := make(chan struct{}), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		_, _ = r.Get(t.Context(), "one", func() (int, error) { close(began); <-end; return 1, nil })
	})
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Get(ctx, "one", func() (int, error) { return 2, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	close(end)
	reader.Wait()
}

// TestAnswersAreForgotten when they are too old.
func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New[int, int](time.Second, time.Now)
		kept := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.answers)
		}
		for key := range 100 {
			if _, err := r.Get(t.Context(), key, func() (int, error) { return key, nil }); err != nil {
				t.Fatal(err)
			}
		}
		if n := kept(); n != 100 {
			t.Errorf("%d answers are kept at first, want 100", n)
		}
		time.Sleep(time.Second) // of the bubble's clock
		synctest.Wait()
		if n := kept(); n != 0 {
			t.Errorf("%d answers are kept after their time", n)
		}
	})
}
