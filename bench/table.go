package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// table is a Markdown table. Its first columns are text, the others are numbers.
type table struct {
	text   int
	header []string
	lines  [][]string
}

func newTable(text int, header ...string) *table { return &table{text: text, header: header} }

func (t *table) add(cells ...string) { t.lines = append(t.lines, cells) }

func (t *table) String() string {
	if len(t.lines) == 0 {
		return ""
	}
	var s strings.Builder
	line := func(cells []string) { fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.header)
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "---"
		if i >= t.text {
			rule[i] = "--:"
		}
	}
	line(rule)
	for _, l := range t.lines {
		line(l)
	}
	return s.String() + "\n"
}

// number formats a value with about three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 100:
		return thousands(fmt.Sprintf("%.0f", v))
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// thousands inserts thousands separators into the digits of an integer.
func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// key identifies what a row measures. Rounds of the same measurement have the same key.
type key struct {
	of, variant   string
	clients, size int
	rate          float64
}

func (r row) key() key { return key{r.Case, r.Variant, r.Clients, r.Size, r.Rate} }

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
	var ratios []float64
	for _, x := range rows {
		for _, y := range rows {
			if x.key() == a && y.key() == b && x.Round == y.Round && of(y) != 0 {
				ratios = append(ratios, of(x)/of(y))
			}
		}
	}
	total := 0.0
	for _, r := range ratios {
		total += r
	}
	return ratio(total, float64(len(ratios)))
}

// fastest returns the row of the fastest shape of the floor.
func fastest(merged []row, k key) (row, bool) {
	var floors []row
	for _, shape := range []string{statementByStatement, pipeline, oneStatement} {
		k.variant = shape
		if r, ok := find(merged, k); ok {
			floors = append(floors, r)
		}
	}
	if len(floors) == 0 {
		return row{}, false
	}
	return slices.MaxFunc(floors, func(a, b row) int { return cmp.Compare(a.perSecond(), b.perSecond()) }), true
}
