package main

import (
	"fmt"
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
		"the load generator share one machine. Times are in ms.\n\n")
	s.WriteString(reportEnvironment(all))
	s.WriteString(reportTargets(all))
	for _, r := range all {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == r.Part })
		s.WriteString("## " + parts[i].title + "\n\n" + parts[i].report(r.Rows))
		s.WriteString(reportErrors(r.Rows))
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
	machine := newTable(2, "machine", "")
	machine.add("processor", fmt.Sprintf("%s, %d cores", e.CPU, e.Cores))
	machine.add("memory", fmt.Sprintf("%.1f GB", e.MemoryGB))
	machine.add("kernel", e.Kernel)
	machine.add("write and fsync of 8 kB", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", e.Fsync.P50, e.Fsync.P99))
	machine.add("Postgres", strings.Split(e.Postgres, ",")[0])
	machine.add("Go", e.Go)
	machine.add("Postgres settings", strings.Join(settings, ", "))

	parts := newTable(4, "part", "command", "started", "commit", "load before", "took")
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

func reportTargets(all []results) string {
	rows := map[string][]row{}
	for _, r := range all {
		rows[r.Part] = r.Rows
	}
	t := newTable(1, "", "actual", "target", "met")
	for _, g := range goals {
		is, ok := g.is(rows)
		if !ok {
			continue
		}
		met := "**no**"
		if g.target.met(is) {
			met = "yes"
		}
		t.add(g.what, number(is), g.target.String(), met)
	}
	return "## Targets\n\n" + t.String()
}

// reportErrors reports failed operations, if any.
func reportErrors(rows []row) string {
	failed := only(rows, func(r row) bool { return r.Errors > 0 })
	if len(failed) == 0 {
		return ""
	}
	return "**Errors:**\n\n" + tableOf(failed,
		words("measurement", func(r row) string { return r.key().String() }),
		words("first error", func(r row) string {
			return "`" + strings.ReplaceAll(strings.Join(strings.Fields(r.Error), " "), "`", "'") + "`"
		}),
		figure("errors", func(r row) float64 { return float64(r.Errors) }),
		figure("operations", func(r row) float64 { return float64(r.Ops) }))
}

func reportAppends(rows []row) string {
	merged := merge(rows)
	floorOf := func(r row) row {
		of, _ := find(merged, r.as(byFloor))
		return of
	}
	return "The floor is the speed of pgbench with the same rows, written by one statement. *Of the floor* is the mean of " +
		"the rounds. CPU time is in ms per 1,000 operations.\n\n" +
		tableOf(only(merged, func(r row) bool { return r.Variant == byServer }), ofCase, whole("clients", clients),
			figure("floor /s", func(r row) float64 { return floorOf(r).perSecond() }), rate("**server /s**"),
			figure("**of the floor**", func(r row) float64 { return pairwise(rows, r.key(), r.as(byFloor), row.perSecond) }),
			p50, p99, figure("floor p50", func(r row) float64 { return floorOf(r).Latency.P50 }),
			figure("**p50 / floor**", func(r row) float64 { return ratio(r.Latency.P50, floorOf(r).Latency.P50) }),
			perThousand("server CPU", serverCPU), perThousand("Postgres CPU", postgresCPU),
			figure("floor Postgres CPU", func(r row) float64 { return postgresCPU(floorOf(r)) * 1000 }),
			figure("WAL B", walBytes), figure("floor WAL B", func(r row) float64 { return walBytes(floorOf(r)) }), statements)
}

func reportEngine(rows []row) string {
	merged := merge(rows)
	closed := only(merged, func(r row) bool { return r.Rate == 0 })
	var s strings.Builder
	s.WriteString("Whole runs with steps that do nothing. *wire* is the protocol of the Workflow SDK, with " +
		"the requests of its stable client; *contract* is the function contract; *flow* is a document with the same steps, " +
		"which the server continues by itself. TTFS is the time from the start of a run " +
		"to its first step, STSO from the end of a step to the start of the next, WO a run's time without its steps. CPU " +
		"time is in ms per run.\n\n")
	for _, workflow := range cases(closed) {
		s.WriteString(tableOf(only(closed, func(r row) bool { return r.Case == workflow }), variant(workflow), inFlight,
			rate("runs /s"), p50, p99, other("TTFS", p50), other("TTFS", p99), other("STSO", p50), other("STSO", p99),
			other("WO", p50), other("WO", p99),
			figure("deliveries /s", func(r row) float64 { return ratio(r.Counts["deliveries"], r.Seconds) }),
			figure("server CPU", serverCPU), figure("Postgres CPU", postgresCPU), figure("function CPU", functionCPU),
			figure("load CPU", loadCPU), statements,
			figure("WAL kB", walKilobytes)))
	}
	s.WriteString("Runs start at a fixed rate, independently of earlier ones. Latencies count from the scheduled start. " +
		"*Unfinished* runs were not done 10 s after the last start.\n\n")
	s.WriteString(tableOf(only(merged, func(r row) bool { return r.Rate > 0 }), variant("seq-3, open loop"),
		figure("runs /s wanted", wanted), rate("done /s"), unfinished, p50, p90, p99, p999, maximum,
		figure("server CPU", serverCPU), figure("Postgres CPU", postgresCPU)))
	return s.String()
}

func reportOverload(rows []row) string {
	open := func(value func(row) float64) func(row) float64 {
		return func(r row) float64 {
			if r.Rate == 0 {
				return none
			}
			return value(r)
		}
	}
	count := func(title, name string) column {
		return figure(title, open(func(r row) float64 { return r.Counts[name] }))
	}
	return "3-step runs that start at a fixed rate: 1, 2, 4 and 8 times what a closed loop gets. A start that " +
		"is refused is not repeated; *retry after* is the mean of what the server asks for. *Done* are the runs that ended while " +
		"the load lasted, except for its first third. Latencies are of accepted runs, from the intended start.\n\n" +
		tableOf(rows, variant(""), words("asked", func(r row) string {
			if r.Rate == 0 {
				return fmt.Sprintf("%d in flight", r.Clients)
			}
			return fmt.Sprintf("%d ×", r.Size)
		}), figure("runs /s asked", open(wanted)), rate("done /s"),
			figure("of the best", func(r row) float64 { return ratio(r.perSecond(), mostDone(rows, r.Variant)) }),
			count("refused /s", countRefused), count("retry after s", countRetry), p50, p99, maximum,
			figure("unfinished", open(unfinished.of)), count("5 s later: done /s", countAfter),
			count("server memory MB", countMemory))
}

func reportGrowth(rows []row) string {
	merged := merge(rows)
	first := func(r row) row { // the smallest of its kind
		return merged[slices.IndexFunc(merged, func(of row) bool {
			return of.Case == r.Case && of.Variant == r.Variant && of.Clients == r.Clients
		})]
	}
	toFirst := func(title string, value func(row) float64) column {
		return figure(title, func(r row) float64 { return ratio(value(r), value(first(r))) })
	}
	return "One client performs one operation at a time on logs of several lengths; then appends and whole " +
		"runs on an empty database and on one with many stored runs. CPU time is in ms per 1,000 operations.\n\n" +
		tableOf(only(merged, func(r row) bool { return r.Clients == 0 }), ofCase, whole("events in the run", size), p50, p99,
			toFirst("**p50 / smallest**", medianOf), perThousand("server CPU", serverCPU),
			perThousand("Postgres CPU", postgresCPU), toFirst("**CPU / smallest**", bothCPU), figure("WAL B", walBytes)) +
		tableOf(only(merged, func(r row) bool { return r.Clients > 0 }), ofCase, variant(""), whole("clients", clients),
			whole("runs stored", size), rate("/s"), toFirst("**/s / empty**", row.perSecond), p50, p99,
			toFirst("**p50 / empty**", medianOf), perThousand("server CPU", serverCPU),
			perThousand("Postgres CPU", postgresCPU), toFirst("**CPU / empty**", bothCPU))
}

func reportIdle(rows []row) string {
	perSecond := func(title string, total func(row) float64) column {
		return figure(title, func(r row) float64 { return ratio(total(r), r.Seconds) })
	}
	return "A server with nothing to do. Postgres' share includes the cost of the measurement.\n\n" +
		tableOf(rows, ofCase, figure("seconds", func(r row) float64 { return r.Seconds }),
			perSecond("% of a core: server", func(r row) float64 { return r.ServerCPU * 100 }),
			perSecond("Postgres", func(r row) float64 { return r.PostgresCPU * 100 }),
			perSecond("statements /s", func(r row) float64 { return float64(r.Statements) }),
			perSecond("transactions /s", func(r row) float64 { return r.Counts["commits"] }),
			perSecond("WAL B/s", func(r row) float64 { return float64(r.WAL) }))
}

func reportSDK(rows []row) string {
	merged := merge(rows)
	on := func(r row) row { // the same on the other backend
		of, _ := find(merged, r.as(onWorldPostgres))
		return of
	}
	elsewhere := func(c column) column {
		return figure("world-postgres "+c.title, func(r row) float64 { return c.of(on(r)) })
	}
	compared := func(title string, value func(row) float64) column {
		return figure(title, func(r row) float64 {
			if r.Variant != onStepwell {
				return none
			}
			return pairwise(rows, r.key(), r.as(onWorldPostgres), value)
		})
	}
	together := func(c column) column { // rates mean nothing with pauses between runs
		return figure(c.title, func(r row) float64 {
			if r.Clients == 1 {
				return none
			}
			return c.of(r)
		})
	}
	return "The same build of one app of the Workflow SDK (`workflow` 4.8.9), " +
		"whose steps do nothing, on Stepwell and on the SDK's own `@workflow/world-postgres` 4.3.7, which runs in the " +
		"app's process. Both use the same Postgres. Each row merges all rounds. *Ratio* is Stepwell's value divided by the " +
		"other's, the mean over the pairs of rounds. The app measures all times.\n\n" +
		tableOf(only(merged, func(r row) bool { return r.Variant == onStepwell }), ofCase, inFlight,
			figure("runs", func(r row) float64 { return float64(r.Ops) }), p50, p90, maximum,
			elsewhere(p50), elsewhere(p90), elsewhere(maximum), compared("**ratio of p50**", medianOf),
			together(rate("runs /s")), together(elsewhere(rate("runs /s"))),
			together(compared("**ratio of runs /s**", row.perSecond))) +
		"CPU time per run in ms, including CPU time used while a run waits:\n\n" +
		tableOf(merged, ofCase, variant("on"), inFlight, figure("app CPU", functionCPU),
			compared("**app CPU, ratio**", functionCPU), figure("server CPU", serverCPU), figure("Postgres CPU", postgresCPU),
			compared("**Postgres CPU, ratio**", postgresCPU),
			figure("all CPU", func(r row) float64 { return functionCPU(r) + bothCPU(r) }), statements,
			figure("WAL kB", walKilobytes))
}

func reportSDKGo(rows []row) string {
	merged := merge(rows)
	onLog := func(r row) bool { return r.Case == callOnALog }
	return "Runs of the Go SDK, whose steps do nothing and are executed where the workflow runs, against " +
		"the same by the function contract with remote steps. *Each step*: each result is on disk before the next step " +
		"begins. The floor is four inserts of a row, one after the other, without server and HTTP. CPU time is in ms per " +
		"run.\n\n" +
		tableOf(only(merged, func(r row) bool { return !onLog(r) }), ofCase, variant(""), inFlight, rate("runs /s"), p50, p99,
			figure("server CPU", serverCPU), figure("Postgres CPU", postgresCPU), figure("function CPU", functionCPU),
			statements) +
		"A payload arrives at a hook of a run: time until its call has been dealt with, by a process that keeps the run " +
		"(warm), and by one that repeats the workflow from its beginning (cold).\n\n" +
		tableOf(only(merged, onLog), ofCase, variant(""), whole("events", size), p50, p99)
}
