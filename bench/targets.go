package main

import "fmt"

// goal is a target for a value.
type goal struct {
	what   string
	is     value
	target bound
}

// value returns a value of the results by part; false if it was not measured.
type value func(rows map[string][]row) (float64, bool)

// bound is the least that a value is to be, or the most.
type bound struct {
	than string
	of   float64
}

func atLeast(v float64) bound { return bound{"≥", v} }
func atMost(v float64) bound  { return bound{"≤", v} }

func (b bound) met(v float64) bool { return v == b.of || (v > b.of) == (b.than == "≥") }

// goals are the targets for a machine with two cores.
var goals = []goal{
	{"append, 32 clients, of the floor",
		compared("append", ofServer("append", 32), onFloor("append", 32), rate), atLeast(0.5)},
	{"send, 32 clients, of the floor",
		compared("append", ofServer("send", 32), onFloor("send", 32), rate), atLeast(0.5)},
	{"append, 1 client, p50 / floor's",
		compared("append", ofServer("append", 1), onFloor("append", 1), median), atMost(3)},
	{"3-step runs /s, 200 in flight, by the wire", figureOf("engine", threeBy("wire", 200), rate), atLeast(600)},
	{"3-step runs /s, 200 in flight, by the contract",
		figureOf("engine", threeBy("contract", 200), rate), atLeast(600)},
	{"overload by the wire, least runs /s / most", leastOfBest("wire"), atLeast(0.9)},
	{"overload by the contract, least runs /s / most", leastOfBest("contract"), atLeast(0.9)},
	{"overload of the Go SDK's app, least runs /s / most", leastOfBest(byGoSDK), atLeast(0.9)},
	{"open loops by the wire, most p99 / p50 alone", flatness("wire"), atMost(5)},
	{"open loops by the contract, most p99 / p50 alone", flatness("contract"), atMost(5)},
	{"open loops of the flow, most p99 / p50 alone", flatness("flow"), atMost(5)},
	{"open loops of the Go SDK's app, most p99 / p50 alone", flatness(byGoSDK), atMost(5)},
	{"single 3-step run, by the wire, p50 ms", figureOf("engine", threeBy("wire", 1), median), atMost(15)},
	{"single 3-step run, by the contract, p50 ms", figureOf("engine", threeBy("contract", 1), median), atMost(15)},
	{"3-step flow alone, p50 / the contract's",
		compared("engine", threeBy("flow", 1), threeBy("contract", 1), median), atMost(0.67)},
	{"3-step flow, 200 in flight, runs /s / the contract's",
		compared("engine", threeBy("flow", 200), threeBy("contract", 200), rate), atLeast(1.6)},
	{"map of 10,000 items, 100 open, all CPU per item ms", figureOf("fanout", tenThousand, allCPU), atMost(1)},
	{"map of 10,000 items, 100 open, items /s", figureOf("fanout", tenThousand, rate), atLeast(500)},
	{"two cells, CPU of server and Postgres per run / one cell's",
		compared("cells", onCells(twoCells, 2), onCells(oneCell, 1), serverSide), atMost(1.05)},
	{"idle, CPU of server and Postgres, ms a second", figureOf("idle", idleServer, serverSide), atMost(10)},
	{"idle, statements /s", figureOf("idle", idleServer, statements), atMost(4)},
	{"SDK app, 1 step, p50 / world-postgres'", ofSDK("1 step", 1, median), atMost(0.9)},
	{"SDK app, 3 steps, p50 / world-postgres'", ofSDK("3 steps", 1, median), atMost(0.8)},
	{"SDK app, 10 steps, p50 / world-postgres'", ofSDK("10 steps", 1, median), atMost(0.8)},
	{"SDK app, 50 at once, p50 / world-postgres'", ofSDK("50 at once", 1, median), atMost(0.7)},
	{"SDK app, hook to code, p50 / world-postgres'", ofSDK("hook to code", 1, median), atMost(1)},
	{"SDK app, chunk to reader, p50 / world-postgres'", ofSDK("chunk to reader", 1, median), atMost(1)},
	{"SDK app, 3 steps, 200 in flight, runs /s / world-postgres'", ofSDK("3 steps", 200, rate), atLeast(1.3)},
	{"SDK app, 3 steps, 200 in flight, app CPU / world-postgres'",
		ofSDK("3 steps", 200, functionCPU), atMost(0.9)},
	{"SDK app, 3 steps, 200 in flight, Postgres CPU / world-postgres'",
		ofSDK("3 steps", 200, postgresCPU), atMost(0.4)},
	{"Go SDK, 3 steps, each on disk, p50 / the contract's",
		compared("sdkgo", threeGo(bySDK, 1), threeGo(byContract, 1), median), atMost(0.5)},
	{"Go SDK, 3 steps, each on disk, 200 in flight, runs /s / the contract's",
		compared("sdkgo", threeGo(bySDK, 200), threeGo(byContract, 200), rate), atLeast(2)},
	{"Go SDK, 3 steps in batches, 200 in flight, runs /s",
		figureOf("sdkgo", threeGo(bySDKBatch, 200), rate), atLeast(600)},
	{"Go SDK, 3 steps, each on disk, p50 / DBOS'",
		compared("peers", threeGo(bySDK, 1), threeGo(onDBOS, 1), median), atMost(1.3)},
	{"Go SDK, embedded, 3 steps, p50 / DBOS'",
		compared("peers", threeGo(byEmbedded, 1), threeGo(onDBOS, 1), median), atMost(1)},
	{"Go SDK, embedded, 3 steps, 200 in flight, runs /s / DBOS'",
		compared("peers", threeGo(byEmbedded, 200), threeGo(onDBOS, 200), rate), atLeast(1.3)},
}

// tenThousand is the key of the largest map.
var tenThousand = key{of: mapCase, variant: "flow", clients: 100, size: 10_000}

func ofServer(workload string, clients int) key { return key{workload, byServer, clients, 0, 0} }
func onFloor(workload string, clients int) key  { return key{workload, byFloor, clients, 0, 0} }
func threeBy(driver string, inFlight int) key   { return key{"seq-3", driver, inFlight, 0, 0} }
func onCells(variant string, n int) key         { return key{openCase, variant, 0, 0, float64(cellRate * n)} }
func threeGo(variant string, inFlight int) key  { return key{threeSteps, variant, inFlight, 0, 0} }

// figureOf is a figure of a row.
func figureOf(part string, k key, c column) value {
	return func(rows map[string][]row) (float64, bool) {
		r, ok := find(merge(rows[part]), k)
		return c.of(r), ok
	}
}

// compared is a figure of one row divided by that of another one.
func compared(part string, a, b key, c column) value {
	return func(rows map[string][]row) (float64, bool) {
		x, ok1 := figureOf(part, a, c)(rows)
		y, ok2 := figureOf(part, b, c)(rows)
		return ratio(x, y), ok1 && ok2
	}
}

// ofSDK compares Stepwell with the other backend.
func ofSDK(what string, inFlight int, c column) value {
	return compared("sdk", key{what, onStepwell, inFlight, 0, 0}, key{what, onWorldPostgres, inFlight, 0, 0}, c)
}

// leastOfBest returns the least runs per second of a variant in an open loop, divided by the most with any load.
func leastOfBest(variant string) value {
	return func(rows map[string][]row) (least float64, ok bool) {
		most := 0.0
		for _, r := range rows["overload"] {
			if r.Variant != variant {
				continue
			}
			most = max(most, r.perSecond())
			if r.Rate > 0 && (!ok || r.perSecond() < least) {
				least, ok = r.perSecond(), true
			}
		}
		return ratio(least, most), ok
	}
}

// flatness returns the greatest p99 of a variant in the open loops of the part engine, divided by its p50 with one run
// in flight.
func flatness(variant string) value {
	return func(rows map[string][]row) (float64, bool) {
		worst := 0.0
		for _, r := range rows["engine"] {
			if r.Variant == variant && r.Rate > 0 {
				worst = max(worst, r.Latency.P99)
			}
		}
		alone, ok := figureOf("engine", threeBy(variant, 1), median)(rows)
		return ratio(worst, alone), ok && worst > 0
	}
}

func reportTargets(all []results) string {
	rows := map[string][]row{}
	for _, r := range all {
		rows[r.Part] = r.Rows
	}
	t := table{header: []string{"", "actual", "target", "met"}, text: 1}
	for _, g := range goals {
		is, ok := g.is(rows)
		if !ok {
			continue
		}
		met := "**no**"
		if g.target.met(is) {
			met = "yes"
		}
		t.add(g.what, number(is), fmt.Sprintf("%s %g", g.target.than, g.target.of), met)
	}
	return "## Targets\n\n" + t.String()
}
