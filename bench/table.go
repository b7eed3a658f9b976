package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
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

// column is a column of a table of rows: words, or a figure.
type column struct {
	title string
	words func(row) string
	of    func(row) float64
	whole bool
}

func words(title string, of func(row) string) column   { return column{title: title, words: of} }
func figure(title string, of func(row) float64) column { return column{title: title, of: of} }
func whole(title string, of func(row) float64) column {
	return column{title: title, of: of, whole: true}
}

func (c column) cell(r row) string {
	switch {
	case c.words != nil:
		return c.words(r)
	case c.whole:
		return thousands(strconv.FormatFloat(c.of(r), 'f', 0, 64))
	default:
		return number(c.of(r))
	}
}

// tableOf returns a table of the rows. Columns with words come first.
func tableOf(rows []row, columns ...column) string {
	var t table
	for _, c := range columns {
		if t.header = append(t.header, c.title); c.words != nil {
			t.text++
		}
	}
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.cell(r)
		}
		t.add(cells...)
	}
	return t.String()
}

// The columns that several tables have.
var (
	ofCase     = words("", func(r row) string { return r.Case })
	inFlight   = whole("in flight", clients)
	p50        = figure("p50", medianOf)
	p90        = figure("p90", func(r row) float64 { return r.Latency.P90 })
	p99        = figure("p99", func(r row) float64 { return r.Latency.P99 })
	p999       = figure("p99.9", func(r row) float64 { return r.Latency.P999 })
	maximum    = figure("max", func(r row) float64 { return r.Latency.Max })
	unfinished = figure("unfinished", func(r row) float64 { return float64(r.Unfinished) })
	statements = figure("statements", func(r row) float64 { return r.per(float64(r.Statements)) })
)

func variant(title string) column { return words(title, func(r row) string { return r.Variant }) }
func rate(title string) column    { return figure(title, row.perSecond) }

func perThousand(title string, of func(row) float64) column {
	return figure(title, func(r row) float64 { return of(r) * 1000 })
}

// other is a column of latencies of another kind.
func other(name string, of column) column {
	return figure(name+" "+of.title, func(r row) float64 {
		q, ok := r.Other[name]
		if !ok {
			return none
		}
		return of.of(row{Latency: q})
	})
}

// The figures of a row. CPU times are in ms per operation.
func clients(r row) float64      { return float64(r.Clients) }
func size(r row) float64         { return float64(r.Size) }
func wanted(r row) float64       { return r.Rate }
func medianOf(r row) float64     { return r.Latency.P50 }
func serverCPU(r row) float64    { return r.per(r.ServerCPU * 1e3) }
func postgresCPU(r row) float64  { return r.per(r.PostgresCPU * 1e3) }
func functionCPU(r row) float64  { return r.per(r.FunctionCPU * 1e3) }
func bothCPU(r row) float64      { return serverCPU(r) + postgresCPU(r) }
func loadCPU(r row) float64      { return r.per(r.LoadCPU * 1e3) }
func allCPU(r row) float64       { return loadCPU(r) + functionCPU(r) + bothCPU(r) }
func walBytes(r row) float64     { return r.per(float64(r.WAL)) }
func walKilobytes(r row) float64 { return walBytes(r) / 1e3 }

// only returns the rows that the condition holds for.
func only(rows []row, holds func(row) bool) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !holds(r) })
}

// cases returns the cases of rows in order.
func cases(rows []row) (all []string) {
	for _, r := range rows {
		if !slices.Contains(all, r.Case) {
			all = append(all, r.Case)
		}
	}
	return all
}

// none is a figure that was not measured: an empty cell.
var none = math.NaN()

// number formats a value with about three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return ""
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
