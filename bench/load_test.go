package main

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestOpenLoopCountsStalls checks that operations behind a stalled one count with their latency from the scheduled
// start.
func TestOpenLoopCountsStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := make(chan struct{}, 1) // one operation at a time, each 1 ms, but the first 500 ms
		do := func(_ context.Context, i int, _ time.Time) (time.Time, error) {
			one <- struct{}{}
			defer func() { <-one }()
			time.Sleep(map[bool]time.Duration{true: 500 * time.Millisecond, false: time.Millisecond}[i == 0])
			return time.Now(), nil
		}
		s := openLoop(t.Context(), 100, time.Second, time.Second, do)
		q := s.Latency.quantiles()
		// 100 operations, 10 ms apart. About the first 50 wait for the rest of the stall.
		if s.Ops != 100 || s.Unfinished != 0 {
			t.Errorf("%d operations, %d unfinished; want 100, 0", s.Ops, s.Unfinished)
		}
		if q.P90 < 350 || q.P90 > 460 || q.Max < 499 {
			t.Errorf("p90 %.0f ms, max %.0f ms; want about 400 and 500", q.P90, q.Max)
		}
	})
}

func TestOpenLoopCountsUnfinishedOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openLoop(t.Context(), 10, time.Second, time.Second, func(ctx context.Context, i int, _ time.Time) (time.Time, error) {
			if i%2 == 0 {
				<-ctx.Done()
				return time.Time{}, ctx.Err()
			}
			return time.Now(), nil
		})
		if s.Unfinished != 5 || s.Ops != 5 || s.Errors != 0 {
			t.Errorf("%d unfinished, %d done, %d errors; want 5, 5, 0", s.Unfinished, s.Ops, s.Errors)
		}
		if q := s.Latency.quantiles(); q.N != 10 || q.Max < 1900 {
			t.Errorf("%d latencies, the longest %.0f ms; want 10, and 2 s for unfinished operations", q.N, q.Max)
		}
	})
}

func TestClosedLoopCountsOperationsAndErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := closedLoop(t.Context(), 4, time.Second, func(_ context.Context, client int, _ time.Time) (time.Time, error) {
			time.Sleep(10 * time.Millisecond)
			if client == 3 {
				return time.Time{}, errors.New("no")
			}
			return time.Now(), nil
		})
		if s.Ops != 300 || s.Errors != 100 || s.first == nil || s.Took != time.Second {
			t.Errorf("%d done, %d errors (%v) in %s; want 300, 100, in 1s", s.Ops, s.Errors, s.first, s.Took)
		}
	})
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	l := newLatencies()
	for i := range 1000 {
		l.record(time.Duration(i+1) * time.Millisecond)
	}
	l.record(time.Hour) // outside the range
	q := l.quantiles()
	for _, of := range []struct{ is, want float64 }{{q.P50, 500}, {q.P90, 900}, {q.P99, 990}, {q.Max, 300_000}} {
		if math.Abs(of.is-of.want) > of.want/200 {
			t.Errorf("%g ms, want %g", of.is, of.want)
		}
	}
	if q.N != 1001 {
		t.Errorf("%d values, want 1001", q.N)
	}
}
