package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// writeReport writes RESULTS.md and the plots for all existing results.
func writeReport(folder string) error {
	all, err := loadResults(folder)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s", folder)
	}
	for name, svg := range plots(all) {
		if err := os.WriteFile(filepath.Join(folder, "results", name), []byte(svg), 0o644); err != nil {
			return fmt.Errorf("write plot: %w", err)
		}
	}
	name := filepath.Join(folder, "RESULTS.md")
	if err := os.WriteFile(name, []byte(render(all)), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	say("wrote %s", name)
	return nil
}

// sections maps each part to its section of the report.
var sections = map[string]func([]row) string{
	"append": reportAppends, "gopath": reportGoPath, "engine": reportEngine, "overload": reportOverload,
	"queue":  reportQueue,
	"growth": reportGrowth, "idle": reportIdle, "limits": reportLimits,
	"sdk": reportSDK, "sdkgo": reportSDKGo,
}

func render(all []results) string {
	var s strings.Builder
	s.WriteString("# Results\n\n<!-- Generated from results/*.json: go run . -report -->\n\n" +
		"[README.md](README.md) describes the measurements and how to read them. Postgres, the server, the function and " +
		"the load generator share one machine.\n\n")
	s.WriteString(reportEnvironment(all))
	s.WriteString(reportTargets(all))
	for _, r := range all {
		s.WriteString(sections[r.Part](r.Rows))
		s.WriteString(reportErrors(r.Rows))
	}
	return strings.TrimRight(s.String(), "\n") + "\n"
}

func reportEnvironment(all []results) string {
	e := all[0].Environment
	t := newTable(2, "machine", "")
	t.add("processor", fmt.Sprintf("%s, %d cores", e.CPU, e.Cores))
	t.add("memory", fmt.Sprintf("%.1f GB", e.MemoryGB))
	t.add("kernel", e.Kernel)
	t.add("write and fsync of 8 kB", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", e.Fsync.P50, e.Fsync.P99))
	t.add("Postgres", strings.Split(e.Postgres, ",")[0])
	t.add("Go", e.Go)
	var names []string
	for name, value := range e.Settings {
		names = append(names, name+" = "+value)
	}
	slices.Sort(names)
	t.add("Postgres settings", strings.Join(names, ", "))

	parts := newTable(4, "part", "command", "started", "commit", "load before", "took")
	for _, r := range all {
		command := "`" + r.Environment.Command + "`"
		if r.Environment.Short {
			command += " (**short: the figures are meaningless**)"
		}
		parts.add(r.Part, command, r.Began.UTC().Format("2006-01-02 15:04 MST"), r.Environment.Commit, r.Environment.Load,
			r.Took.Round(time.Second).String())
	}
	return t.String() + parts.String()
}

// reportErrors reports failed operations, if any.
func reportErrors(rows []row) string {
	t := newTable(2, "measurement", "first error", "errors", "operations")
	for _, r := range rows {
		if r.Errors > 0 {
			t.add(r.key().String(), "`"+strings.ReplaceAll(r.Error, "`", "'")+"`",
				number(float64(r.Errors)), number(float64(r.Ops)))
		}
	}
	if len(t.lines) == 0 {
		return ""
	}
	return "**Errors:**\n\n" + t.String()
}

func reportAppends(rows []row) string {
	merged := merge(rows)
	var s strings.Builder
	s.WriteString("## Append and send\n\nThe floor is the speed of pgbench with the same rows: statement by statement, " +
		"all statements in one round trip (pipeline), or as one statement. *Of the floor* compares with the fastest of " +
		"these, round by round. Times are in ms, CPU time in ms per 1,000 operations.\n\n")
	t := newTable(1, "", "clients", "floor: statements /s", "pipeline /s", "one statement /s", "**server /s**",
		"**of the floor**", "p50", "p99", "floor p50", "**p50 / floor**", "server CPU", "Postgres CPU", "floor Postgres CPU",
		"WAL B", "floor WAL B", "statements")
	for _, r := range merged {
		if r.Variant != "server" || strings.HasPrefix(r.Case, "rows of") {
			continue
		}
		floor, ok := fastest(merged, r.key())
		if !ok {
			continue
		}
		cells := []string{r.Case, strconv.Itoa(r.Clients)}
		for _, shape := range []string{statementByStatement, pipeline, oneStatement} {
			k := r.key()
			k.variant = shape
			cell := "" // not measured
			if of, ok := find(merged, k); ok {
				cell = number(of.perSecond())
			}
			cells = append(cells, cell)
		}
		t.add(append(cells, number(r.perSecond()), number(pairwise(rows, r.key(), floor.key(), row.perSecond)),
			number(r.Latency.P50), number(r.Latency.P99), number(floor.Latency.P50),
			number(ratio(r.Latency.P50, floor.Latency.P50)),
			number(r.per(r.ServerCPU*1e6)), number(r.per(r.PostgresCPU*1e6)), number(floor.per(floor.PostgresCPU*1e6)),
			number(r.per(float64(r.WAL))), number(floor.per(float64(floor.WAL))), number(r.per(float64(r.Statements))))...)
	}
	s.WriteString(t.String())
	s.WriteString("Rows written per operation, as counted by Postgres:\n\n")
	s.WriteString(reportWritten(rows))
	return s.String()
}

// reportWritten shows that the floor writes the same rows as the server.
func reportWritten(rows []row) string {
	t := newTable(3, "operation", "by", "rows")
	for _, r := range rows {
		if !strings.HasPrefix(r.Case, "rows of") {
			continue
		}
		var counts []string
		for what, n := range r.Counts {
			counts = append(counts, what+" "+number(r.per(n)))
		}
		slices.Sort(counts)
		t.add(strings.TrimPrefix(r.Case, "rows of "), r.Variant, strings.Join(counts, ", "))
	}
	return t.String()
}

func reportGoPath(rows []row) string {
	t := newTable(1, "", "clients", "appends /s", "p50 ms", "p99 ms")
	for _, r := range merge(rows) {
		t.add(r.Case, strconv.Itoa(r.Clients), number(r.perSecond()), number(r.Latency.P50), number(r.Latency.P99))
	}
	return "## Append in Go\n\n`eventlog.Log.Append` without HTTP, by `go test -bench` (no warm-up, no " +
		"messages).\n\n" + t.String()
}

func reportQueue(rows []row) string {
	t := newTable(2, "", "", "in flight", "/s wanted", "/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "server CPU ms",
		"Postgres CPU ms", "function CPU ms", "statements", "WAL B")
	for _, r := range merge(rows) {
		t.add(r.Case, r.Variant, whole(r.Clients), number(r.Rate), number(r.perSecond()), number(r.Latency.P50),
			number(r.Latency.P90), number(r.Latency.P99), number(r.Latency.Max), number(r.per(r.ServerCPU*1e3)),
			number(r.per(r.PostgresCPU*1e3)), number(r.per(r.FunctionCPU*1e3)), number(r.per(float64(r.Statements))),
			number(r.per(float64(r.WAL))))
	}
	return "## Queue\n\nLatency from sending a message to the call of its function, and from resuming a hook to the " +
		"waiting code. The function acknowledges at once. CPU time, statements and WAL are per message; on an idle server " +
		"they include its idle load.\n\n" + t.String()
}

func reportGrowth(rows []row) string {
	merged := merge(rows)
	logs := newTable(1, "", "events in the run", "p50 ms", "p99 ms", "**p50 / smallest**", "server CPU", "Postgres CPU",
		"**CPU / smallest**", "WAL B")
	stored := newTable(2, "", "", "clients", "runs stored", "/s", "**/s / empty**", "p50 ms", "p99 ms", "**p50 / empty**",
		"server CPU", "Postgres CPU", "**CPU / empty**")
	cpu := func(r row) float64 { return r.per((r.ServerCPU + r.PostgresCPU) * 1e6) }
	for _, r := range merged {
		first := merged[slices.IndexFunc(merged, func(of row) bool {
			return of.Case == r.Case && of.Variant == r.Variant && of.Clients == r.Clients
		})]
		p50, cost := number(ratio(r.Latency.P50, first.Latency.P50)), number(ratio(cpu(r), cpu(first)))
		server, postgres := number(r.per(r.ServerCPU*1e6)), number(r.per(r.PostgresCPU*1e6))
		if r.Clients == 0 {
			logs.add(r.Case, whole(r.Size), number(r.Latency.P50), number(r.Latency.P99), p50, server, postgres, cost,
				number(r.per(float64(r.WAL))))
			continue
		}
		stored.add(r.Case, r.Variant, strconv.Itoa(r.Clients), thousands(strconv.Itoa(r.Size)), number(r.perSecond()),
			number(ratio(r.perSecond(), first.perSecond())), number(r.Latency.P50), number(r.Latency.P99), p50, server,
			postgres, cost)
	}
	return "## Growth\n\nOne client performs one operation at a time on logs of several lengths; then appends and whole " +
		"runs on an empty database and on one with many stored runs. CPU time is in ms per 1,000 operations.\n\n" +
		logs.String() + stored.String()
}

func reportIdle(rows []row) string {
	t := newTable(1, "", "seconds", "% of a core: server", "Postgres", "statements /s", "transactions /s", "WAL B/s")
	for _, r := range rows {
		t.add(r.Case, number(r.Seconds), number(ratio(r.ServerCPU, r.Seconds)*100),
			number(ratio(r.PostgresCPU, r.Seconds)*100), number(ratio(float64(r.Statements), r.Seconds)),
			number(ratio(r.Counts["commits"], r.Seconds)),
			number(ratio(float64(r.WAL), r.Seconds)))
	}
	return "## Idle\n\nA server with nothing to do. Postgres' share includes the cost of the measurement.\n\n" + t.String()
}

func whole(n int) string {
	if n == 0 {
		return ""
	}
	return thousands(strconv.Itoa(n))
}
