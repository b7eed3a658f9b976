package main

import (
	"cmp"
	"fmt"
	"slices"
)

// key identifies what a row measures. Rounds of the same measurement have the same key.
type key struct {
	of, variant   string
	clients, size int
	rate          float64
}

func (r row) key() key { return key{r.Case, r.Variant, r.Clients, r.Size, r.Rate} }

// as returns the key of the same measurement of another variant.
func (r row) as(variant string) key {
	k := r.key()
	k.variant = variant
	return k
}

// String formats the key for errors.
func (k key) String() string {
	return fmt.Sprintf("%s by %s, %d clients, size %d, %g/s", k.of, k.variant, k.clients, k.size, k.rate)
}

// merge merges the rounds of each measurement, in order of first occurrence: it sums counts and times, and takes the
// mean of latencies, weighted by operations.
func merge(rows []row) []row {
	var merged []row
	at := map[key]int{}
	for _, r := range rows {
		i, ok := at[r.key()]
		if !ok {
			at[r.key()] = len(merged)
			merged = append(merged, r)
			continue
		}
		merged[i] = sum(merged[i], r)
	}
	return merged
}

func sum(a, b row) row {
	s := a
	s.Ops, s.Seconds = a.Ops+b.Ops, a.Seconds+b.Seconds
	s.Errors, s.Unfinished = a.Errors+b.Errors, a.Unfinished+b.Unfinished
	s.Error = cmp.Or(a.Error, b.Error)
	s.ServerCPU, s.PostgresCPU = a.ServerCPU+b.ServerCPU, a.PostgresCPU+b.PostgresCPU
	s.FunctionCPU, s.LoadCPU = a.FunctionCPU+b.FunctionCPU, a.LoadCPU+b.LoadCPU
	s.WAL, s.Statements = a.WAL+b.WAL, a.Statements+b.Statements
	s.Latency = mean(a.Latency, float64(a.Ops), b.Latency, float64(b.Ops))
	s.Other, s.Counts = map[string]quantiles{}, map[string]float64{}
	for name := range a.Other {
		s.Other[name] = mean(a.Other[name], float64(a.Other[name].N), b.Other[name], float64(b.Other[name].N))
	}
	for name := range a.Counts {
		s.Counts[name] = a.Counts[name] + b.Counts[name]
	}
	return s
}

func mean(a quantiles, n float64, b quantiles, m float64) quantiles {
	of := func(x, y float64) float64 { return ratio(x*n+y*m, n+m) }
	return quantiles{
		N: a.N + b.N, Mean: of(a.Mean, b.Mean), P50: of(a.P50, b.P50), P90: of(a.P90, b.P90), P99: of(a.P99, b.P99),
		P999: of(a.P999, b.P999), Max: max(a.Max, b.Max),
	}
}

// find returns the merged row with the key, if there is one.
func find(rows []row, k key) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.key() == k })
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// pairwise returns the mean over the rounds of the ratio between the rows of two keys.
func pairwise(rows []row, a, b key, of func(row) float64) float64 {
	total, rounds := 0.0, 0.0
	for _, x := range rows {
		for _, y := range rows {
			if x.key() == a && y.key() == b && x.Round == y.Round && of(y) != 0 {
				total, rounds = total+of(x)/of(y), rounds+1
			}
		}
	}
	return ratio(total, rounds)
}
