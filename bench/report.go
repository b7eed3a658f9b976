package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeReport writes RESULTS.md for all existing results.
func writeReport(folder string) error {
	all, err := loadResults(folder)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s", folder)
	}
	name := filepath.Join(folder, "RESULTS.md")
	if err := os.WriteFile(name, []byte(render(all)), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	say("wrote %s", name)
	return nil
}

func render(all []results) string {
	var s strings.Builder
	s.WriteString("# Results\n\n<!-- Generated from results/*.json: go run . -report -->\n\n" +
		"[README.md](README.md) describes the measurements and how to read them. Postgres, the server, the function and " +
		"the load generator share one machine. Times are in ms. CPU time, statements and WAL are those of one operation. " +
		"A column with ÷ has a figure divided by that of the other variant in the same case.\n\n")
	s.WriteString(reportEnvironment(all))
	s.WriteString(reportTargets(all))
	for _, r := range all {
		p := parts[slices.IndexFunc(parts, func(p part) bool { return p.name == r.Part })]
		fmt.Fprintf(&s, "## %s\n\n%s\n\n%s", p.title, p.about, tableOf(r.Rows, p.than))
	}
	return strings.TrimRight(s.String(), "\n") + "\n"
}

func reportEnvironment(all []results) string {
	e := all[0].Environment
	var settings []string
	for name, value := range e.Settings {
		settings = append(settings, name+" = "+value)
	}
	slices.Sort(settings)
	machine := table{header: []string{"machine", ""}, text: 2}
	machine.add("processor", fmt.Sprintf("%s, %d cores", e.CPU, e.Cores))
	machine.add("memory", fmt.Sprintf("%.1f GB", e.MemoryGB))
	machine.add("kernel", e.Kernel)
	machine.add("write and fsync of 8 kB", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", e.Fsync.P50, e.Fsync.P99))
	machine.add("Postgres", strings.Split(e.Postgres, ",")[0])
	machine.add("Go", e.Go)
	machine.add("Postgres settings", strings.Join(settings, ", "))

	parts := table{header: []string{"part", "command", "started", "commit", "load before", "took"}, text: 4}
	for _, r := range all {
		command := "`" + r.Environment.Command + "`"
		if r.Environment.Short {
			command += " (**short: the figures are meaningless**)"
		}
		parts.add(r.Part, command, r.Began.UTC().Format("2006-01-02 15:04 MST"), r.Environment.Commit, r.Environment.Load,
			r.Took.Round(time.Second).String())
	}
	return machine.String() + parts.String()
}

// table is a Markdown table. Its first columns are text, the others are numbers.
type table struct {
	header []string
	text   int
	lines  [][]string
}

func (t *table) add(cells ...string) { t.lines = append(t.lines, cells) }

func (t *table) String() string {
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "--:"
		if i < t.text {
			rule[i] = "---"
		}
	}
	var s strings.Builder
	for _, line := range slices.Concat([][]string{t.header, rule}, t.lines) {
		fmt.Fprintf(&s, "| %s |\n", strings.Join(line, " | "))
	}
	return s.String() + "\n"
}

// column is a column of a table of rows: text, or a figure. A figure of 0 was not measured: its cell is empty.
type column struct {
	title string
	text  func(row) string
	of    func(row) float64
}

func (c column) cell(r row) string {
	if c.text != nil {
		return c.text(r)
	}
	return number(c.of(r))
}

// The figures that targets and comparisons are about.
var (
	rate        = column{title: "/s", of: row.perSecond}
	median      = column{title: "p50", of: func(r row) float64 { return r.Latency.P50 }}
	functionCPU = column{title: "function CPU", of: func(r row) float64 { return r.per(r.FunctionCPU * 1e3) }}
	postgresCPU = column{title: "Postgres CPU", of: func(r row) float64 { return r.per(r.PostgresCPU * 1e3) }}
	serverCPU   = column{title: "server CPU", of: func(r row) float64 { return r.per(r.ServerCPU * 1e3) }}
	statements  = column{title: "statements", of: func(r row) float64 { return r.per(float64(r.Statements)) }}
	serverSide  = column{title: "server and Postgres CPU", of: func(r row) float64 {
		return serverCPU.of(r) + postgresCPU.of(r)
	}}
	allCPU = column{title: "all CPU", of: func(r row) float64 {
		return r.per((r.ServerCPU + r.PostgresCPU + r.FunctionCPU + r.LoadCPU) * 1e3)
	}}
)

// columns are those of all tables, the text first.
var columns = []column{
	{title: "", text: func(r row) string { return r.Case }},
	{title: "variant", text: func(r row) string { return r.Variant }},
	{title: "version and settings", text: func(r row) string { return r.About }},
	{title: "first error", text: func(r row) string { return oneLine(r.Error, 200) }},
	{title: "in flight", of: func(r row) float64 { return float64(r.Clients) }},
	{title: "size", of: func(r row) float64 { return float64(r.Size) }},
	{title: "asked /s", of: func(r row) float64 { return r.Rate }},
	rate, median,
	{title: "p90", of: func(r row) float64 { return r.Latency.P90 }},
	{title: "p99", of: func(r row) float64 { return r.Latency.P99 }},
	{title: "max", of: func(r row) float64 { return r.Latency.Max }},
	{title: "unfinished", of: func(r row) float64 { return float64(r.Unfinished) }},
	{title: "errors", of: func(r row) float64 { return float64(r.Errors) }},
	serverCPU, postgresCPU, functionCPU,
	{title: "load CPU", of: func(r row) float64 { return r.per(r.LoadCPU * 1e3) }},
	allCPU,
	statements,
	{title: "WAL B", of: func(r row) float64 { return r.per(float64(r.WAL)) }},
}

// tableOf returns a table of the rows, whose rounds it merges, without the columns that none of them fills. With the
// name of a variant, it compares the others with that.
func tableOf(rows []row, than string) string {
	merged := merge(rows)
	kept := slices.Concat(columns, ownColumns(merged), comparisons(merged, than))
	kept = slices.DeleteFunc(kept, func(c column) bool {
		return !slices.ContainsFunc(merged, func(r row) bool { return c.cell(r) != "" })
	})
	var t table
	for _, c := range kept {
		if t.header = append(t.header, c.title); c.text != nil {
			t.text++
		}
	}
	for _, r := range merged {
		cells := make([]string, len(kept))
		for i, c := range kept {
			cells[i] = c.cell(r)
		}
		t.add(cells...)
	}
	return t.String()
}

// ownColumns are those of the values that only some parts have.
func ownColumns(rows []row) (own []column) {
	counts := map[string]float64{}
	for _, r := range rows {
		maps.Copy(counts, r.Counts)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		own = append(own, column{title: name, of: func(r row) float64 { return r.Counts[name] }})
	}
	return own
}

// comparisons are the ratios to the same case of another variant.
func comparisons(merged []row, than string) (ratios []column) {
	for _, c := range []column{rate, median, functionCPU, postgresCPU} {
		ratios = append(ratios, column{title: c.title + " ÷ " + than, of: func(r row) float64 {
			other, found := find(merged, r.as(than))
			if !found || r.Variant == than {
				return 0
			}
			return ratio(c.of(r), c.of(other))
		}})
	}
	return ratios
}

// oneLine returns the beginning of a text for a cell of a table.
func oneLine(text string, most int) string {
	return fmt.Sprintf("%.*s", most, strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "/"))
}

// number formats a value with about three significant digits, and 0 as nothing.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return ""
	case a >= 100 || v == math.Trunc(v):
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
