package main

import (
	"fmt"
	"slices"
	"strconv"
)

func reportSDK(rows []row) string {
	return "## One app of the SDK, on two backends\n\nThe same build of one app of the Workflow SDK (`workflow` 4.8.9), " +
		"whose steps do nothing, on Stepwell and on the SDK's own `@workflow/world-postgres` 4.3.7, which runs in the " +
		"app's process. Both use the same Postgres. Each row merges all rounds. *Ratio* is Stepwell's value divided by the " +
		"other's, the mean over the pairs of rounds. The app measures all times, in ms.\n\n" +
		reportSDKLatencies(rows) + reportSDKCosts(rows) + reportShares(rows) + reportKinds(rows) + reportTrace(rows)
}

// counterpart returns the key of the world-postgres row for one of Stepwell's.
func counterpart(k key) key {
	k.variant = onWorldPostgres
	return k
}

func reportSDKLatencies(rows []row) string {
	t := newTable(1, "", "in flight", "runs", "Stepwell p50", "p90", "max", "world-postgres p50", "p90", "max",
		"**ratio of p50**", "Stepwell runs /s", "world-postgres runs /s", "**ratio**")
	merged := merge(rows)
	for _, r := range merged {
		of, ok := find(merged, counterpart(r.key()))
		if r.Variant != onStepwell || !ok {
			continue
		}
		rates := []string{"", "", ""} // meaningless with pauses between runs
		if r.Clients > 1 {
			rates = []string{number(r.perSecond()), number(of.perSecond()),
				number(pairwise(rows, r.key(), of.key(), row.perSecond))}
		}
		t.add(append([]string{r.Case, strconv.Itoa(r.Clients), number(float64(r.Ops)),
			number(r.Latency.P50), number(r.Latency.P90), number(r.Latency.Max),
			number(of.Latency.P50), number(of.Latency.P90), number(of.Latency.Max),
			number(pairwise(rows, r.key(), of.key(), medianOf))}, rates...)...)
	}
	return t.String()
}

func reportSDKCosts(rows []row) string {
	t := newTable(2, "per run", "on", "in flight", "app CPU", "**app CPU, ratio**", "server CPU", "Postgres CPU", "**Postgres CPU, ratio**",
		"all CPU", "statements", "WAL kB")
	for _, r := range merge(rows) {
		if r.Variant != onStepwell && r.Variant != onWorldPostgres {
			continue
		}
		compare := func(of func(row) float64) string {
			if r.Variant != onStepwell {
				return ""
			}
			return number(pairwise(rows, r.key(), counterpart(r.key()), of))
		}
		t.add(r.Case, r.Variant, strconv.Itoa(r.Clients), number(appPerRun(r)), compare(appPerRun),
			number(r.per(r.ServerCPU*1e3)), number(postgresPerRun(r)), compare(postgresPerRun),
			number(r.per((r.FunctionCPU+r.ServerCPU+r.PostgresCPU)*1e3)),
			number(r.per(float64(r.Statements))), number(r.per(float64(r.WAL)/1e3)))
	}
	return "CPU time per run in ms, including CPU time used while a run waits:\n\n" + t.String()
}

func postgresPerRun(r row) float64 { return r.per(r.PostgresCPU * 1e3) }

func appPerRun(r row) float64 { return r.per(r.FunctionCPU * 1e3) }

// reportShares reports how the duration of runs divides between server, app and queue.
func reportShares(rows []row) string {
	t := newTable(1, "one run, on Stepwell", "p50 ms", "server answers", "app works", "queue delivers",
		"requests of the app", "deliveries")
	for _, r := range rows {
		if r.Case == "trace" {
			t.add(r.Variant, number(r.Latency.P50), number(r.per(r.Counts["server"])), number(r.per(r.Counts["app"])),
				number(r.per(r.Counts["queue"])), number(r.per(r.Counts["requests of the "+fromApp])),
				number(r.per(r.Counts["requests of the "+fromServer])))
		}
	}
	if len(t.lines) == 0 {
		return ""
	}
	return "How the time from a run's first request to the answer that it has ended is spent, one run at a time, as " +
		"seen by a proxy between app and server, which adds some time itself. *Server answers*: a request of the app is in " +
		"flight. *App works*: a message is being delivered, and no request is in flight. *Queue delivers*: neither. Means, " +
		"in ms.\n\n" + t.String()
}

// reportKinds reports the app's requests in a run, their number, and their latency.
func reportKinds(rows []row) string {
	var runs []row
	var names []string
	header := []string{"requests of the app"}
	for _, r := range rows {
		if r.Case != "trace" {
			continue
		}
		header = append(header, "in "+r.Variant, "ms each")
		for _, k := range r.Profile {
			if !slices.Contains(names, k.Query) {
				names = append(names, k.Query)
			}
		}
		runs = append(runs, r)
	}
	t := newTable(1, header...)
	for _, name := range names {
		line := []string{"`" + name + "`"}
		for _, r := range runs {
			i := slices.IndexFunc(r.Profile, func(k statement) bool { return k.Query == name })
			if i < 0 {
				line = append(line, "", "")
				continue
			}
			k := r.Profile[i]
			line = append(line, number(r.per(float64(k.Calls))), number(ratio(k.Took, float64(k.Calls))))
		}
		t.add(line...)
	}
	return t.String()
}

func reportTrace(rows []row) string {
	i := slices.IndexFunc(rows, func(r row) bool { return r.Case == "trace" && r.Variant == "three" })
	if i < 0 {
		return ""
	}
	t := newTable(3, "from", "method", "path", "status", "at ms", "took ms", "before it, ms")
	before := gaps(rows[i].Trace)
	for j, e := range rows[i].Trace {
		t.add(e.From, e.Method, "`"+e.Path+"`", strconv.Itoa(e.Status), fixed(e.At), fixed(e.Took), fixed(before[j]))
	}
	return "All requests of the run of three steps with the median duration. *Before it* is the time since the app last " +
		"received an answer or a message; before a request of the app, that is the app's own time. The delivery of a " +
		"message takes as long as the app works on it.\n\n" + t.String()
}

func fixed(ms float64) string { return fmt.Sprintf("%.1f", ms) }
