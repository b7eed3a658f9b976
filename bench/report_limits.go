package main

import "strconv"

// reportLimits is the section of the part limits.
func reportLimits(rows []row) string {
	runs := newTable(1, "seq-1", "in flight", "runs /s", "**of no limits**", "p50", "p99", "server CPU", "Postgres CPU",
		"statements")
	starts := newTable(1, "starts with 32 clients", "starts /s", "p50", "p99", "wait at the end", "server CPU", "Postgres CPU",
		"statements")
	waiting := newTable(1, "", "wait", "runs /s", "**of the fewest**", "server CPU", "Postgres CPU", "statements")
	idle := newTable(1, "nothing happens", "statements /s", "% of a core: server", "Postgres")
	merged := merge(rows)
	for _, r := range merged {
		server, postgres, statements := number(r.per(r.ServerCPU*1e3)), number(r.per(r.PostgresCPU*1e3)),
			number(r.per(float64(r.Statements)))
		switch r.Case {
		case caseIdle:
			idle.add(r.Variant, number(ratio(float64(r.Statements), r.Seconds)), number(ratio(r.ServerCPU, r.Seconds)*100),
				number(ratio(r.PostgresCPU, r.Seconds)*100))
		case caseHot:
			starts.add(r.Variant, number(r.perSecond()), number(r.Latency.P50), number(r.Latency.P99),
				number(r.Counts[countWaiting]), server, postgres, statements)
		case caseWaiting:
			of, _ := sizes(merged, caseWaiting)
			waiting.add(r.Variant, whole(r.Size), number(r.perSecond()), number(ratio(r.perSecond(), of.perSecond())), server,
				postgres, statements)
		default:
			of, _ := find(merged, key{of: caseFree, variant: "contract", clients: r.Clients})
			if r.Case == caseFull {
				of, _ = find(merged, key{of: caseSlots, variant: "contract", clients: fewSlots})
			}
			runs.add(r.Case, strconv.Itoa(r.Clients), number(r.perSecond()), number(ratio(r.perSecond(), of.perSecond())),
				number(r.Latency.P50), number(r.Latency.P99), server, postgres, statements)
		}
	}
	return "## Limits\n\nWhole runs of one step by the contract, with and without limits; a saturated limit has 8 slots, and is compared " +
		"with as many in flight. Then starts alone, of runs that nobody executes. Then runs that have waited for one of 8 slots, " +
		"while as many start as end, so that as many wait all the time. Times are in ms, CPU time and statements per run or " +
		"start.\n\n" + runs.String() + starts.String() + waiting.String() + idle.String()
}

// sizes returns the rows of a case with the least size and with the largest.
func sizes(merged []row, of string) (least, most row) {
	for _, r := range merged {
		if r.Case != of {
			continue
		}
		if least.Case == "" || r.Size < least.Size {
			least = r
		}
		if r.Size > most.Size {
			most = r
		}
	}
	return least, most
}

// limitedOf returns the rate of a case divided by that without limits.
func limitedOf(what string) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		for _, r := range rows["limits"] {
			if r.Case == what {
				free := r.key()
				free.of = caseFree
				return pairwise(rows["limits"], r.key(), free, row.perSecond), true
			}
		}
		return 0, false
	}
}

func saturatedOf(rows map[string][]row) (float64, bool) {
	for _, r := range rows["limits"] {
		if r.Case == caseFull {
			free := key{of: caseSlots, variant: r.Variant, clients: fewSlots}
			return pairwise(rows["limits"], r.key(), free, row.perSecond), true
		}
	}
	return 0, false
}

// withKey returns the rate without limits divided by that without the foreign key of permits.
func withKey(rows map[string][]row) (float64, bool) {
	for _, r := range rows["limits"] {
		if r.Case == caseKey {
			without := r.key()
			without.of = caseNoKey
			return pairwise(rows["limits"], r.key(), without, row.perSecond), true
		}
	}
	return 0, false
}

// hotStarts returns the rate of starts with one key, of the slower variant.
func hotStarts(rows map[string][]row) (least float64, ok bool) {
	for _, r := range merge(rows["limits"]) {
		if r.Case == caseHot && r.Variant != startsFree && (!ok || r.perSecond() < least) {
			least, ok = r.perSecond(), true
		}
	}
	return least, ok
}

func waitingOf(rows map[string][]row) (float64, bool) {
	least, most := sizes(merge(rows["limits"]), caseWaiting)
	return ratio(most.perSecond(), least.perSecond()), least.Size < most.Size
}

// limitedIdle returns how many more statements a second an idle server makes because there are limits.
func limitedIdle(rows map[string][]row) (float64, bool) {
	perSecond := func(variant string) (float64, bool) {
		r, ok := find(rows["limits"], key{of: caseIdle, variant: variant})
		return ratio(float64(r.Statements), r.Seconds), ok
	}
	free, ok := perSecond(idleFree)
	limited, _ := perSecond(idleLimited)
	return limited - free, ok
}
