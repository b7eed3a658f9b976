package main

import "strconv"

func reportSDKGo(rows []row) string {
	merged := merge(rows)
	t := newTable(2, "", "", "in flight", "runs /s", "p50", "p99", "server CPU", "Postgres CPU", "function CPU",
		"statements")
	calls := newTable(2, "", "", "events", "p50", "p99")
	for _, r := range merged {
		if r.Case == callOnALog {
			calls.add(r.Case, r.Variant, strconv.Itoa(r.Size), number(r.Latency.P50), number(r.Latency.P99))
			continue
		}
		t.add(r.Case, r.Variant, strconv.Itoa(r.Clients), number(r.perSecond()), number(r.Latency.P50), number(r.Latency.P99),
			number(r.per(r.ServerCPU*1e3)), number(r.per(r.PostgresCPU*1e3)), number(r.per(r.FunctionCPU*1e3)),
			number(r.per(float64(r.Statements))))
	}
	return "## Go SDK\n\nRuns of the Go SDK, whose steps do nothing and are executed where the workflow runs, against " +
		"the same by the function contract with remote steps. *Each step*: each result is on disk before the next step " +
		"begins. The floor is four inserts of a row, one after the other, without server and HTTP. Times are in ms, CPU " +
		"time in ms per run.\n\n" + t.String() +
		"A payload arrives at a hook of a run: time until its call has been dealt with, by a process that keeps the run " +
		"(warm), and by one that repeats the workflow from its beginning (cold).\n\n" + calls.String()
}

// goRatio compares the median or throughput of two variants of runs with three steps.
func goRatio(a, b string, clients int, of func(row) float64) func(map[string][]row) (float64, bool) {
	return variantRatio("sdkgo", threeSteps, a, b, clients, of)
}

// goRuns is the throughput of a variant.
func goRuns(variant string, clients int) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		r, ok := find(merge(rows["sdkgo"]), key{of: threeSteps, variant: variant, clients: clients})
		return r.perSecond(), ok
	}
}

// warmGrowth compares a warm call on the longest log with one on the shortest.
func warmGrowth(rows map[string][]row) (float64, bool) {
	var shortest, longest row
	for _, r := range merge(rows["sdkgo"]) {
		if r.Case != callOnALog || r.Variant != warmVariant {
			continue
		}
		if shortest.Size == 0 || r.Size < shortest.Size {
			shortest = r
		}
		if r.Size > longest.Size {
			longest = r
		}
	}
	return ratio(longest.Latency.P50, shortest.Latency.P50), shortest.Size < longest.Size
}
