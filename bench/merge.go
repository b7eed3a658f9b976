package main

import (
	"cmp"
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

// merge merges the rounds of each measurement, in order of first occurrence: it sums counts and times, and takes the
// mean of latencies, weighted by operations. No part with rounds has other values.
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
