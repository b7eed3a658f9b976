package main

import (
	"strconv"
	"strings"
)

func reportEngine(rows []row) string {
	merged := merge(rows)
	var s strings.Builder
	s.WriteString("## Engine\n\nWhole runs with steps that do nothing. *wire* is the protocol of the Workflow SDK, with " +
		"the requests of its stable client; *contract* is the function contract; *flow* is a document with the same steps, " +
		"which the server continues by itself. TTFS is the time from the start of a run " +
		"to its first step, STSO from the end of a step to the start of the next, WO a run's time without its steps. Times " +
		"are in ms, CPU time in ms per run.\n\n" +
		"![Runs per second by runs in flight](results/throughput.svg)\n\n")
	for _, workflow := range cases(merged) {
		t := newTable(1, workflow, "in flight", "runs /s", "p50", "p99", "TTFS p50", "p99", "STSO p50", "p99",
			"WO p50", "p99", "deliveries /s", "server CPU", "Postgres CPU", "function CPU", "load CPU", "statements", "WAL kB")
		for _, r := range merged {
			if r.Case == workflow && r.Rate == 0 {
				t.add(engineCells(r)...)
			}
		}
		s.WriteString(t.String())
	}
	s.WriteString(reportProfile(merged))
	t := newTable(1, "seq-3, open loop", "runs /s wanted", "done /s", "unfinished", "p50", "p90", "p99", "p99.9", "max",
		"server CPU", "Postgres CPU")
	for _, r := range merged {
		if r.Rate > 0 {
			t.add(r.Variant, number(r.Rate), number(r.perSecond()), number(float64(r.Unfinished)), number(r.Latency.P50),
				number(r.Latency.P90), number(r.Latency.P99), number(r.Latency.P999), number(r.Latency.Max),
				number(r.per(r.ServerCPU*1e3)), number(r.per(r.PostgresCPU*1e3)))
		}
	}
	s.WriteString("Runs start at a fixed rate, independently of earlier ones. Latencies count from the scheduled start. " +
		"*Unfinished* runs were not done 10 s after the last start." +
		"\n\n" +
		"![Latency by rate](results/latency.svg)\n\n" + t.String())
	return s.String()
}

func engineCells(r row) []string {
	cells := []string{
		r.Variant, strconv.Itoa(r.Clients), number(r.perSecond()), number(r.Latency.P50), number(r.Latency.P99),
	}
	for _, name := range []string{"TTFS", "STSO", "WO"} {
		q, ok := r.Other[name]
		if !ok {
			cells = append(cells, "", "")
			continue
		}
		cells = append(cells, number(q.P50), number(q.P99))
	}
	return append(cells, number(ratio(r.Counts["deliveries"], r.Seconds)), number(r.per(r.ServerCPU*1e3)),
		number(r.per(r.PostgresCPU*1e3)), number(r.per(r.FunctionCPU*1e3)), number(r.per(r.LoadCPU*1e3)),
		number(r.per(float64(r.Statements))), number(r.per(float64(r.WAL)/1e3)))
}

// cases returns the cases of closed loops in order.
func cases(rows []row) []string {
	var all []string
	seen := map[string]bool{}
	for _, r := range rows {
		if r.Rate == 0 && !seen[r.Case] {
			seen[r.Case] = true
			all = append(all, r.Case)
		}
	}
	return all
}
