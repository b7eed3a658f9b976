package main

import "slices"

func reportPeers(rows []row) string {
	merged := merge(rows)
	had := only(merged, func(r row) bool { return r.Case == threeSteps && r.Clients == 200 })
	at := func(what string, inFlight int, c column) column { // the column of another row of the same variant
		return figure(c.title, func(r row) float64 {
			of, ok := find(merged, key{what, r.Variant, inFlight, 0, 0})
			if !ok {
				return none
			}
			return c.of(of)
		})
	}
	single := func(what string) []column {
		return []column{at(what, 1, figure(what+": p50", medianOf)), at(what, 1, figure("CPU", allCPU))}
	}
	about := words("version and settings", func(r row) string { return r.About })
	return "The same run on Stepwell and its peers, one after the other on the same machine. Steps do nothing, and a " +
		"client starts a run and awaits its end. CPU time is in ms per run, of client, app, server and Postgres together. " +
		"First three steps, one after the other: one run at a time, and 64 and 200 in flight.\n\n" +
		tableOf(had, variant(""), at(threeSteps, 1, figure("alone: **p50**", medianOf)), at(threeSteps, 1, p99),
			at(threeSteps, 1, figure("CPU", allCPU)), at(threeSteps, 64, rate("64: **runs /s**")),
			at(threeSteps, 64, p50), at(threeSteps, 64, p99), at(threeSteps, 64, figure("CPU", allCPU)),
			rate("200: **runs /s**"), p50, p99, figure("**CPU**", allCPU),
			figure("client and app", func(r row) float64 { return loadCPU(r) + functionCPU(r) }),
			figure("server", serverCPU), figure("Postgres", postgresCPU), statements, figure("WAL kB", walKilobytes)) +
		"Other runs, one at a time. The last one receives a signal, and then sleeps for " + nap.String() + ".\n\n" +
		tableOf(had, slices.Concat([]column{variant("")}, single(oneStep), single(tenSteps), single(fiftyAtOnce),
			single(signalNap))...) +
		tableOf(slices.Concat(had, only(rows, func(r row) bool { return r.Case == notHad })), variant(""), about)
}
