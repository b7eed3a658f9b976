package main

import (
	"fmt"
	"math"
	"slices"
)

// goal is a target for a value.
type goal struct {
	what   string
	is     value
	target bounds
}

// value returns a value of the results by part; false if it was not measured.
type value func(rows map[string][]row) (float64, bool)

// bounds are the range in which a value is to be.
type bounds struct{ low, high float64 }

func atLeast(v float64) bounds { return bounds{v, math.Inf(1)} }
func atMost(v float64) bounds  { return bounds{math.Inf(-1), v} }

// flat are the bounds of what must not grow.
var flat = bounds{0.8, 1.2}

func (t bounds) met(v float64) bool { return t.low <= v && v <= t.high }

// String formats the bounds for the report.
func (t bounds) String() string {
	switch {
	case math.IsInf(t.high, 1):
		return fmt.Sprintf("≥ %g", t.low)
	case math.IsInf(t.low, -1):
		return fmt.Sprintf("≤ %g", t.high)
	default:
		return fmt.Sprintf("%g to %g", t.low, t.high)
	}
}

// goals are the targets for a machine with two cores.
var goals = []goal{
	{"append, 32 clients, of the floor", rounds("append", ofServer("append", 32), onFloor("append", 32), row.perSecond), atLeast(0.5)},
	{"send, 32 clients, of the floor", rounds("append", ofServer("send", 32), onFloor("send", 32), row.perSecond), atLeast(0.5)},
	{"append, 1 client, p50 / floor's", compared("append", ofServer("append", 1), onFloor("append", 1), medianOf), atMost(3)},
	{"3-step runs /s, by the wire, most", mostRuns("wire"), atLeast(600)},
	{"3-step runs /s, by the contract, most", mostRuns("contract"), atLeast(600)},
	{"overload by the wire, least runs /s / most", leastOfBest("wire"), atLeast(0.9)},
	{"overload by the contract, least runs /s / most", leastOfBest("contract"), atLeast(0.9)},
	{"overload of the Go SDK's app, least runs /s / most", leastOfBest(byGoSDK), atLeast(0.9)},
	{"single 3-step run, by the wire, p50 ms", figureOf("engine", threeBy("wire", 1), medianOf), atMost(15)},
	{"single 3-step run, by the contract, p50 ms", figureOf("engine", threeBy("contract", 1), medianOf), atMost(15)},
	{"3-step flow alone, p50 / the contract's", compared("engine", threeBy("flow", 1), threeBy("contract", 1), medianOf), atMost(0.67)},
	{"3-step flow, 200 in flight, runs /s / the contract's",
		compared("engine", threeBy("flow", 200), threeBy("contract", 200), row.perSecond), atLeast(1.6)},
	{"map of 10,000 items, 100 open, all CPU per item ms", figureOf("fanout", tenThousand, allCPU), atMost(1)},
	{"map of 10,000 items, 100 open, s", figureOf("fanout", tenThousand, func(r row) float64 { return r.Seconds }), atMost(20)},
	{"idle, % of a core (server and Postgres)", figureOf("idle", idleServer, func(r row) float64 {
		return ratio(r.ServerCPU+r.PostgresCPU, r.Seconds) * 100
	}), atMost(1)},
	{"idle, statements /s", figureOf("idle", idleServer, func(r row) float64 {
		return ratio(float64(r.Statements), r.Seconds)
	}), atMost(4)},
	{"append, CPU at the longest log / at the shortest",
		compared("growth", key{of: "append", size: 10_000}, key{of: "append", size: 10}, bothCPU), flat},
	{"read a log of 10,000 events, CPU of the server ms",
		figureOf("growth", key{of: "read the log", size: 10_000}, serverCPU), atMost(19)},
	{"append, 32 clients, CPU with a million runs stored / with none",
		compared("growth", appendBeside(1_000_000), appendBeside(0), bothCPU), flat},
	{"SDK app, 1 step, p50 / world-postgres'", ofSDK("1 step", 1, medianOf), atMost(0.9)},
	{"SDK app, 3 steps, p50 / world-postgres'", ofSDK("3 steps", 1, medianOf), atMost(0.8)},
	{"SDK app, 10 steps, p50 / world-postgres'", ofSDK("10 steps", 1, medianOf), atMost(0.8)},
	{"SDK app, 50 at once, p50 / world-postgres'", ofSDK("50 at once", 1, medianOf), atMost(0.7)},
	{"SDK app, hook to code, p50 / world-postgres'", ofSDK("hook to code", 1, medianOf), atMost(1)},
	{"SDK app, chunk to reader, p50 / world-postgres'", ofSDK("chunk to reader", 1, medianOf), atMost(1)},
	{"SDK app, 3 steps, 200 in flight, runs /s / world-postgres'", ofSDK("3 steps", 200, row.perSecond), atLeast(1.3)},
	{"SDK app, 3 steps, 200 in flight, app CPU / world-postgres'", ofSDK("3 steps", 200, functionCPU), atMost(0.9)},
	{"SDK app, 3 steps, 200 in flight, Postgres CPU / world-postgres'", ofSDK("3 steps", 200, postgresCPU), atMost(0.4)},
	{"Go SDK, 3 steps, each on disk, p50 / the contract's",
		compared("sdkgo", threeGo(bySDK, 1), threeGo(byContract, 1), medianOf), atMost(0.5)},
	{"Go SDK, 3 steps, each on disk, 200 in flight, runs /s / the contract's",
		compared("sdkgo", threeGo(bySDK, 200), threeGo(byContract, 200), row.perSecond), atLeast(2)},
	{"Go SDK, 3 steps in batches, 200 in flight, runs /s", figureOf("sdkgo", threeGo(bySDKBatch, 200), row.perSecond), atLeast(600)},
	{"Go SDK, warm call on the longest log / on the shortest, p50",
		compared("sdkgo", warmCall(10_000), warmCall(10), medianOf), flat},
	{"Go SDK, 3 steps, each on disk, p50 / DBOS'",
		compared("peers", threeGo(bySDK, 1), threeGo(onDBOS, 1), medianOf), atMost(1.3)},
	{"Go SDK, embedded, 3 steps, p50 / DBOS'",
		compared("peers", threeGo(byEmbedded, 1), threeGo(onDBOS, 1), medianOf), atMost(1)},
	{"Go SDK, embedded, 3 steps, 200 in flight, runs /s / DBOS'",
		compared("peers", threeGo(byEmbedded, 200), threeGo(onDBOS, 200), row.perSecond), atLeast(1.3)},
	{"Go SDK, embedded, 3 steps, 200 in flight, all CPU / the best peer's",
		toPeers(byEmbedded, 200, allCPU, least), atMost(1)},
	{"Go SDK, 3 steps, each on disk, 64 in flight, runs /s / the best peer's",
		toPeers(bySDK, 64, row.perSecond, most), atLeast(1.2)},
	{"Go SDK, 3 steps, each on disk, 200 in flight, runs /s / the best peer's",
		toPeers(bySDK, 200, row.perSecond, most), atLeast(1.2)},
	{"Go SDK, 3 steps, each on disk, 200 in flight, all CPU / the best peer's",
		toPeers(bySDK, 200, allCPU, least), atMost(1)},
	{"Go SDK, 3 steps in batches, 200 in flight, runs /s / the best peer's",
		toPeers(bySDKBatch, 200, row.perSecond, most), atLeast(1.8)},
	{"contract, 3 steps, 200 in flight, runs /s / the best peer's",
		toPeers(byContractOnly, 200, row.perSecond, most), atLeast(1)},
	{"flow, 3 steps, 200 in flight, runs /s / the best peer's",
		toPeers(byFlowOnly, 200, row.perSecond, most), atLeast(1)},
}

// tenThousand is the key of the largest map.
var tenThousand = key{of: mapCase, variant: "flow", clients: 100, size: 10_000}

var most, least = slices.Max[[]float64], slices.Min[[]float64]

func ofServer(workload string, clients int) key { return key{workload, byServer, clients, 0, 0} }
func onFloor(workload string, clients int) key  { return key{workload, byFloor, clients, 0, 0} }
func threeBy(driver string, inFlight int) key   { return key{"seq-3", driver, inFlight, 0, 0} }
func threeGo(variant string, inFlight int) key  { return key{threeSteps, variant, inFlight, 0, 0} }
func appendBeside(stored int) key               { return key{appendStored, byServer, 32, stored, 0} }
func warmCall(events int) key                   { return key{callOnALog, warmVariant, 0, events, 0} }

// figureOf is a figure of a row.
func figureOf(part string, k key, of func(row) float64) value {
	return func(rows map[string][]row) (float64, bool) {
		r, ok := find(merge(rows[part]), k)
		return of(r), ok
	}
}

// compared is a figure of one row divided by that of another one.
func compared(part string, a, b key, of func(row) float64) value {
	return func(rows map[string][]row) (float64, bool) {
		x, ok1 := figureOf(part, a, of)(rows)
		y, ok2 := figureOf(part, b, of)(rows)
		return ratio(x, y), ok1 && ok2
	}
}

// rounds is the mean of the ratios of the rounds.
func rounds(part string, a, b key, of func(row) float64) value {
	return func(rows map[string][]row) (float64, bool) {
		is := pairwise(rows[part], a, b, of)
		return is, is > 0
	}
}

// toPeers compares one of Stepwell's ways to run three steps with the best of the peers.
func toPeers(variant string, inFlight int, of func(row) float64, best func([]float64) float64) value {
	return func(rows map[string][]row) (float64, bool) {
		own, ok := figureOf("peers", threeGo(variant, inFlight), of)(rows)
		var theirs []float64
		for _, r := range peersOnly(merge(rows["peers"])) {
			if r.key() == threeGo(r.Variant, inFlight) && r.Ops > 0 {
				theirs = append(theirs, of(r))
			}
		}
		if !ok || len(theirs) == 0 {
			return 0, false
		}
		return ratio(own, best(theirs)), true
	}
}

// ofSDK compares Stepwell with the other backend.
func ofSDK(what string, inFlight int, of func(row) float64) value {
	return rounds("sdk", key{what, onStepwell, inFlight, 0, 0}, key{what, onWorldPostgres, inFlight, 0, 0}, of)
}

// mostRuns is the highest rate of 3-step runs, with any number in flight.
func mostRuns(driver string) value {
	return func(rows map[string][]row) (most float64, ok bool) {
		for _, r := range rows["engine"] {
			if r.Case == "seq-3" && r.Variant == driver && r.Rate == 0 {
				most, ok = max(most, r.perSecond()), true
			}
		}
		return most, ok
	}
}
