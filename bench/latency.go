package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of histograms. Three digits mean an error of at most a thousandth.
const (
	shortest = int64(time.Microsecond)
	longest  = int64(5 * time.Minute)
	digits   = 3
)

// latencies is a histogram for concurrent use.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies { return &latencies{h: hdrhistogram.New(shortest, longest, digits)} }

// record adds a value. Values outside the range are clamped.
func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(min(max(int64(d), shortest), longest)) // fails only outside the range
}

// quantiles are the reported latencies in milliseconds.
type quantiles struct {
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func (l *latencies) quantiles() quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(q float64) float64 { return milliseconds(time.Duration(l.h.ValueAtQuantile(q))) }
	return quantiles{
		N: l.h.TotalCount(), Mean: l.h.Mean() / float64(time.Millisecond),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: milliseconds(time.Duration(l.h.Max())),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
