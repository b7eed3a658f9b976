package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
)

// multiples are how many times what fits is asked for.
var multiples = []int{1, 2, 4, 8}

// The counts of a row of the part overload.
const (
	countRefused = "refused"       // starts per second
	countLate    = "late"          // runs that ended after the window
	countAfter   = "after"         // runs per second once the load is over
	countMemory  = "memory MB"     // the most that the server had in memory
	countRetry   = "retry after s" // what refused clients were told on average
)

// overloadDrivers are the two protocols, and the Go SDK's app.
var overloadDrivers = append(slices.Clone(drivers), goDriver)

// measureOverload asks for more runs than fit. What fits is what a closed loop gets.
func measureOverload(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, d := range overloadDrivers {
		sizes := slices.DeleteFunc(slices.Clone(multiples), func(n int) bool {
			return !b.wants(fmt.Sprintf("%s seq-3 %dx", d.name, n))
		})
		if len(sizes) == 0 {
			continue
		}
		s, err := b.newTestbed(ctx, "all")
		if err != nil {
			return nil, err
		}
		s.client = s.client.lean() // most requests are starts that are refused
		of, err := b.overloadRows(ctx, s, d, sizes)
		if err := errors.Join(err, s.clear()); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

func (b *bench) overloadRows(ctx context.Context, s *testbed, d driver, sizes []int) ([]row, error) {
	clients := b.inFlight[len(b.inFlight)-1]
	b.saturate(ctx, s, d, clients, b.warm)
	fits, err := s.measure(ctx, row{Case: "seq-3", Variant: d.name, Clients: clients}, func() (*sample, error) {
		return b.saturate(ctx, s, d, clients, b.engine), nil
	})
	if err != nil {
		return nil, err
	}
	say("overload %s: %.0f/s fit, p50 %.1f ms", d.name, fits.perSecond(), fits.Latency.P50)
	rows := []row{fits}
	for _, n := range sizes {
		r, err := b.overloadRow(ctx, s, d, row{
			Case: "seq-3", Variant: d.name, Size: n, Rate: float64(n) * fits.perSecond(),
		})
		if err != nil {
			return nil, err
		}
		say("overload %s, %d times what fits: %.0f/s, p50 %.1f ms, refused %.0f/s, errors %d %s", d.name, n, r.perSecond(),
			r.Latency.P50, r.Counts[countRefused], r.Errors, r.Error)
		rows = append(rows, r)
	}
	return rows, nil
}

// saturate keeps a number of runs in flight.
func (b *bench) saturate(ctx context.Context, s *testbed, d driver, clients int, window time.Duration) *sample {
	return closedLoop(ctx, clients, window, func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		return d.run(ctx, s, workflowPrefix+"seq-3")
	})
}

// overloadRow asks for runs at a rate. Refused starts are not repeated. Only runs that end while the load lasts count
// as done, so that a backlog which is worked off later does not look like throughput; and only once the load has
// settled, since nothing ends right after its start. The usage is that of the same time.
func (b *bench) overloadRow(ctx context.Context, s *testbed, d driver, r row) (row, error) {
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	var early, late, told atomic.Int64
	began := time.Now()
	end := began.Add(b.open)
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		done, err := d.run(ctx, s, workflowPrefix+r.Case)
		switch {
		case refused(err, http.StatusTooManyRequests, http.StatusServiceUnavailable):
			told.Add(retryAfter(err))
			err = errRefused
		case err == nil && done.Before(began.Add(b.settle)):
			early.Add(1)
		case err == nil && done.After(end):
			late.Add(1)
		}
		return done, err
	}
	var used usage
	var failed error
	var measuring sync.WaitGroup
	measuring.Go(func() { used, failed = s.between(ctx, began.Add(b.settle), end) })
	got := openLoop(ctx, r.Rate, b.open, b.overloadGrace, once)
	if measuring.Wait(); failed != nil {
		return r, failed
	}
	r = r.with(got).using(used)
	memory, err := peakMemory(s.server.PID())
	if err != nil {
		return r, err
	}
	time.Sleep(time.Until(end.Add(b.recovery)))
	after := b.saturate(ctx, s, d, b.inFlight[len(b.inFlight)-1], b.recovery)
	if err := s.awaitEmptyQueue(ctx); err != nil {
		return r, err
	}
	r.Ops -= early.Load() + late.Load()
	r.Seconds = (b.open - b.settle).Seconds()
	r.Counts = map[string]float64{
		countRefused: float64(got.Refused) / b.open.Seconds(), countLate: float64(late.Load()), countMemory: memory,
		countAfter: float64(after.Ops) / after.Took.Seconds(), countRetry: ratio(float64(told.Load()), float64(got.Refused)),
	}
	return r, nil
}

// errRefused is the error of a start that the server refused for lack of capacity.
var errRefused = errors.New("the start was refused")

// retryAfter returns after how many seconds a refused client is to try again, by the text of the refusal.
func retryAfter(refusal error) (seconds int64) {
	if told := toldToRetry.FindStringSubmatch(refusal.Error()); told != nil {
		seconds, _ = strconv.ParseInt(told[1], 10, 64)
	}
	return seconds
}

var toldToRetry = regexp.MustCompile(`try again in (\d+)s`)

// peakMemory returns the most memory that a process has had, in MB.
func peakMemory(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}
