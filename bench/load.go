package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// operation is one operation of a load. It gets the time from which its latency counts, and returns the time at which
// it was done, which may be earlier than its return.
type operation func(ctx context.Context, client int, began time.Time) (done time.Time, err error)

// sample is the result of a load.
type sample struct {
	Ops        int64
	Errors     int64
	Refused    int64 // operations that failed with errRefused
	Unfinished int64 // operations of an open loop that were not done after the grace
	Took       time.Duration
	Latency    *latencies

	mu    sync.Mutex
	first error // the first error
}

func newSample() *sample { return &sample{Latency: newLatencies()} }

// add counts an operation that began, or was scheduled to begin, at the given time.
func (s *sample) add(began, done time.Time, err error) {
	if err == nil {
		atomic.AddInt64(&s.Ops, 1)
		s.Latency.record(done.Sub(began))
		return
	}
	if errors.Is(err, errRefused) {
		atomic.AddInt64(&s.Refused, 1)
		return
	}
	atomic.AddInt64(&s.Errors, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = err
	}
}

// closedLoop lets each client repeat the operation for the window, and at least once if the window is not empty. Each
// client has one operation in flight.
func closedLoop(ctx context.Context, clients int, window time.Duration, do operation) *sample {
	s := newSample()
	began := time.Now()
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() {
			for first := window > 0; (first || time.Since(began) < window) && ctx.Err() == nil; first = false {
				at := time.Now()
				done, err := do(ctx, client, at)
				s.add(at, done, err)
			}
		})
	}
	working.Wait()
	s.Took = time.Since(began)
	return s
}

// openLoop starts operations at a fixed rate, independently of earlier ones, and then waits for them for at most the
// grace. Latencies count from the scheduled start, as users experience them if an operation starts late because the
// machine is busy. This corrects for coordinated omission. The latency of an unfinished operation is the time until the
// end of the grace.
func openLoop(ctx context.Context, rate float64, window, grace time.Duration, do operation) *sample {
	s := newSample()
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(window+grace))
	defer cancel()
	var working sync.WaitGroup
	for i := 0; ; i++ {
		at := began.Add(intendedStart(i, rate))
		if at.Sub(began) >= window || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Until(at))
		working.Go(func() {
			done, err := do(ctx, i, at)
			if errors.Is(err, context.DeadlineExceeded) {
				atomic.AddInt64(&s.Unfinished, 1)
				s.Latency.record(time.Since(at))
				return
			}
			s.add(at, done, err)
		})
	}
	working.Wait()
	s.Took = time.Since(began)
	return s
}

// intendedStart returns the scheduled start of the ith operation, relative to the first.
func intendedStart(i int, rate float64) time.Duration {
	return time.Duration(float64(i) / rate * float64(time.Second))
}
