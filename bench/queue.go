package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const sinkWorkflow = workflowPrefix + "sink"

// measureQueue measures the latency from sending a message to the call of its function, and from resuming a hook to the
// waiting code.
func measureQueue(ctx context.Context, b *bench) ([]row, error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	rows, err := b.messageRows(ctx, s)
	if err == nil {
		var hooks []row
		hooks, err = b.hookRows(ctx, s)
		rows = append(rows, hooks...)
	}
	return rows, errors.Join(err, s.clear())
}

// next returns the next pause.
func (p pauses) next() time.Duration { return p.Min + rand.N(p.Min) }

// sink sends messages and receives reports of their deliveries.
type sink struct {
	*testbed

	sender *client

	mu      sync.Mutex
	waiting map[int64]chan time.Time // by time of sending, which is unique
	last    int64
}

// newSink returns a sink that reads the function's reports until the context ends.
func newSink(ctx context.Context, s *testbed) *sink {
	k := &sink{testbed: s, sender: s.client.lean(), waiting: map[int64]chan time.Time{}}
	go func() {
		for {
			select {
			case r := <-s.reports.sink:
				k.received(r)
			case <-ctx.Done():
				return
			}
		}
	}()
	return k
}

func (k *sink) received(r report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.waiting[r.Sent]; ok { // else it is a second delivery
		c <- time.Unix(0, r.At)
		delete(k.waiting, r.Sent)
	}
}

// register assigns a message its unique time of sending.
func (k *sink) register() (sent int64, came chan time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(time.Now().UnixNano(), k.last+1)
	came = make(chan time.Time, 1)
	k.waiting[k.last] = came
	return k.last, came
}

// send sends a message and returns the time at which the function was called with it.
func (k *sink) send(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
	sent, came := k.register()
	err := k.sender.send(ctx, "", "", message{
		payload{TraceCarrier: map[string]any{}, RequestedAt: time.Unix(0, sent), SentAt: sent}, workflowTopic + sinkWorkflow,
	})
	if err != nil {
		return time.Time{}, err
	}
	select {
	case at := <-came:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	case <-time.After(timeout):
		return time.Time{}, fmt.Errorf("a message was not delivered within %s", timeout)
	}
}

func (b *bench) messageRows(ctx context.Context, s *testbed) ([]row, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := newSink(ctx, s)
	closedLoop(ctx, 1, b.warm, k.send)
	idle, err := b.oneByOne(ctx, s, row{Case: "message to function, idle"}, b.messages, k.send)
	if err != nil {
		return nil, err
	}
	rows := []row{idle}
	for _, n := range b.load {
		r, err := b.messageRow(ctx, s, row{Case: "messages", Clients: n}, func() *sample {
			return closedLoop(ctx, n, b.window, k.send)
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	for _, rate := range b.msgRates {
		r, err := b.messageRow(ctx, s, row{Case: "messages", Rate: rate}, func() *sample {
			return openLoop(ctx, rate, b.window, b.grace, k.send)
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) messageRow(ctx context.Context, s *testbed, r row, load func() *sample) (row, error) {
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	var got *sample
	u, err := s.during(ctx, func() error {
		got = load()
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("%s, %d in flight, %g a second: %w", r.Case, r.Clients, r.Rate, err)
	}
	if err := s.awaitEmptyQueue(ctx); err != nil {
		return r, err
	}
	r = r.with(got).using(u)
	say("%s, %d in flight, %g a second: %.0f/s, p50 %.1f ms", r.Case, r.Clients, r.Rate, r.perSecond(), r.Latency.P50)
	return r, nil
}

// oneByOne measures an operation repeatedly on an idle server, with pauses.
func (b *bench) oneByOne(ctx context.Context, s *testbed, r row, times int, do operation) (row, error) {
	got := newSample()
	u, err := s.during(ctx, func() error {
		began := time.Now()
		for range times {
			time.Sleep(b.pause.next())
			at := time.Now()
			done, err := do(ctx, 0, at)
			got.add(at, done, err)
		}
		got.Took = time.Since(began)
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Case, err)
	}
	r = r.with(got).using(u)
	say("%s: p50 %.2f ms, p99 %.2f ms", r.Case, r.Latency.P50, r.Latency.P99)
	return r, nil
}

// waiter starts a run that waits at a hook, and resumes it.
type waiter struct {
	name   string
	start  func(context.Context, *testbed) (run string, err error)
	resume func(context.Context, *testbed, string) error
}

var waiters = []waiter{
	{
		"wire",
		func(ctx context.Context, s *testbed) (string, error) {
			run := newRunID()
			return run, s.client.start(ctx, workflowPrefix+"hook", run)
		},
		resumeByWire,
	},
	{
		"contract",
		func(ctx context.Context, s *testbed) (string, error) {
			return s.client.startRun(ctx, workflowPrefix+"hook")
		},
		func(ctx context.Context, s *testbed, run string) error {
			return s.client.json(ctx, http.MethodPost, "/v1/hooks/"+tokenOf(run)+"/resume",
				map[string]any{"payload": map[string]int{"n": 1}}, nil)
		},
	},
}

// resumeByWire sends the requests of the SDK's resumeHook: read the hook, read the run, append the payload, send a
// message to the workflow.
func resumeByWire(ctx context.Context, s *testbed, run string) error {
	accept := http.Header{"Accept": {"application/cbor"}}
	for _, path := range []string{
		"/sdk/v2/hooks/by-token?token=" + tokenOf(run), "/sdk/v2/runs/" + run + "?remoteRefBehavior=resolve",
	} {
		if _, err := s.client.call(ctx, http.MethodGet, path, accept.Clone(), nil); err != nil {
			return err
		}
	}
	m := newEvent("hook_received", "hook_"+run[len("wrun_"):])
	m.HookToken, m.body = tokenOf(run), stepResult
	if _, err := s.client.post(ctx, run, m); err != nil {
		return err
	}
	return s.client.sendFlow(ctx, workflowPrefix+"hook", run, nil)
}

func (b *bench) hookRows(ctx context.Context, s *testbed) ([]row, error) {
	var rows []row
	for _, w := range waiters {
		runs := make(chan string, b.hooks)
		for range b.hooks {
			run, err := w.start(ctx, s)
			if err != nil {
				return nil, err
			}
			if err := s.awaitHook(ctx, run); err != nil {
				return nil, err
			}
			runs <- run
		}
		resume := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
			run := <-runs
			if err := w.resume(ctx, s, run); err != nil {
				return time.Time{}, err
			}
			r, err := s.reports.await(ctx, run)
			return time.Unix(0, r.Received), err
		}
		r, err := b.oneByOne(ctx, s, row{Case: "hook resumed to code, idle", Variant: w.name}, b.hooks, resume)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// awaitHook waits until the run's hook exists.
func (s *testbed) awaitHook(ctx context.Context, run string) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		_, err := s.client.call(ctx, http.MethodGet, "/sdk/v2/hooks/by-token?token="+tokenOf(run), nil, nil)
		if !refused(err, http.StatusNotFound) || time.Now().After(deadline) {
			return err
		}
	}
}
