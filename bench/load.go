package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// operation is what a load consists of. It gets the time from which its latency counts, and returns when what it has
// begun was done, which may be a while ago.
type operation func(ctx context.Context, client int, began time.Time) (done time.Time, err error)

// sample is what came of a load.
type sample struct {
	Ops        int64
	Errors     int64
	Unfinished int64 // of an open loop: what was not done when the patience was over
	Took       time.Duration
	Latency    *latencies

	mu    sync.Mutex
	first error // that happened
}

func newSample() *sample { return &sample{Latency: newLatencies()} }

// add counts an operation that began, or was to begin, at the given time.
func (s *sample) add(began, done time.Time, err error) {
	if err == nil {
		atomic.AddInt64(&s.Ops, 1)
		s.Latency.record(done.Sub(began))
		return
	}
	atomic.AddInt64(&s.Errors, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = err
	}
}

// closedLoop has so many clients repeat the operation for so long, each as soon as its last one is done, and
// at least once.
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

// openLoop begins operations at a fixed rate, whatever becomes of those before, and waits for them for at most the
// grace. The latency is that from the time at which an operation was to begin: one that begins late because the
// machine is busy, or waits behind others, is as late as its user sees it. That is what is called corrected for
// coordinated omission. Of what is not done in the end, the latency is what it was until then.
func openLoop(ctx context.Context, rate float64, window, grace time.Duration, do operation) *sample {
	s := newSample()
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(window+grace))
	defer cancel()
	var working sync.WaitGroup
	for i := 0; ; i++ {
		at := began.Add(intended(i, rate))
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

// intended is when the operation of that number begins, after the first.
func intended(i int, rate float64) time.Duration {
	return time.Duration(float64(i) / rate * float64(time.Second))
}
