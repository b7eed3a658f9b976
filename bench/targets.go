package main

import (
	"fmt"
	"slices"
)

// goal is a target for a value.
type goal struct {
	what string
	is   func(map[string][]row) (float64, bool) // false if it was not measured
	want string
	met  func(float64) bool
}

func atLeast(v float64) func(float64) bool { return func(is float64) bool { return is >= v } }
func atMost(v float64) func(float64) bool  { return func(is float64) bool { return is <= v } }

// goals are the targets for a machine with two cores.
var goals = []goal{
	{"append, 32 clients, of the floor", ofFloor("append", 32), "≥ 0.5", atLeast(0.5)},
	{"send, 32 clients, of the floor", ofFloor("send", 32), "≥ 0.5", atLeast(0.5)},
	{"append, 1 client, p50 / floor's", appendLatency, "≤ 3", atMost(3)},
	{"3-step runs /s, by the wire, most", mostRuns("wire"), "≥ 600", atLeast(600)},
	{"3-step runs /s, by the contract, most", mostRuns("contract"), "≥ 600", atLeast(600)},
	{"overload by the wire, least runs /s / most", leastOfBest("wire"), "≥ 0.9", atLeast(0.9)},
	{"overload by the contract, least runs /s / most", leastOfBest("contract"), "≥ 0.9", atLeast(0.9)},
	{"overload of the Go SDK's app, least runs /s / most", leastOfBest(byGoSDK), "≥ 0.9", atLeast(0.9)},
	{"single 3-step run, by the wire, p50 ms", latencyOf("engine", key{"seq-3", "wire", 1, 0, 0}), "≤ 15", atMost(15)},
	{"single 3-step run, by the contract, p50 ms", latencyOf("engine", key{"seq-3", "contract", 1, 0, 0}), "≤ 15",
		atMost(15)},
	{"3-step flow alone, p50 / the contract's", flowRatio(1, medianOf), "≤ 0.67", atMost(0.67)},
	{"3-step flow, 200 in flight, runs /s / the contract's", flowRatio(200, row.perSecond), "≥ 1.6", atLeast(1.6)},
	{"message to function, idle, p50 ms", latencyOf("queue", key{of: "message to function, idle"}), "≤ 5", atMost(5)},
	{"hook to code, wire, p50 ms", latencyOf("queue", resumed("wire")), "≤ 15", atMost(15)},
	{"hook to code, contract, p50 ms", latencyOf("queue", resumed("contract")), "≤ 15", atMost(15)},
	{"idle, % of a core (server and Postgres)", idleCPU, "≤ 1", atMost(1)},
	{"idle, statements /s", idleStatements, "≤ 4", atMost(4)},
	{"limits that do not apply, runs /s / without limits", limitedOf(caseOther), "≥ 0.97", atLeast(0.97)},
	{"no limits, runs /s / without the foreign key of limits", withKey, "≥ 0.97", atLeast(0.97)},
	{"limits with room, runs /s / without limits", limitedOf(caseRoom), "≥ 0.8", atLeast(0.8)},
	{"saturated limit, runs /s / without limits, as many in flight as slots", saturatedOf, "≥ 0.5", atLeast(0.5)},
	{"limit on one key, starts /s", hotStarts, "≥ 1,000", atLeast(1000)},
	{"most waiting for a limit, runs /s / fewest waiting", waitingOf, "0.8 to 1.2", within(0.8, 1.2)},
	{"idle with limits, more statements /s", limitedIdle, "≤ 0.2", atMost(0.2)},
	{"append, CPU at the longest log / at the shortest", growthOf("append"), "0.8 to 1.2", within(0.8, 1.2)},
	{"read a log of 10,000 events, CPU of the server ms", readCPU, "≤ 19", atMost(19)},
	{"append, CPU with many runs stored / with none", growthOf("append, by stored runs"), "0.8 to 1.2", within(0.8, 1.2)},
	{"SDK app, 1 step, p50 / world-postgres'", sdkRatio("1 step", 1, medianOf), "≤ 0.9", atMost(0.9)},
	{"SDK app, 3 steps, p50 / world-postgres'", sdkRatio("3 steps", 1, medianOf), "≤ 0.8", atMost(0.8)},
	{"SDK app, 10 steps, p50 / world-postgres'", sdkRatio("10 steps", 1, medianOf), "≤ 0.8", atMost(0.8)},
	{"SDK app, 50 at once, p50 / world-postgres'", sdkRatio("50 at once", 1, medianOf), "≤ 0.7", atMost(0.7)},
	{"SDK app, hook to code, p50 / world-postgres'", sdkRatio("hook to code", 1, medianOf), "≤ 1", atMost(1)},
	{"SDK app, chunk to reader, p50 / world-postgres'", sdkRatio("chunk to reader", 1, medianOf), "≤ 1", atMost(1)},
	{"SDK app, 3 steps, 200 in flight, runs /s / world-postgres'", sdkRatio("3 steps", 200, row.perSecond), "≥ 1.3",
		atLeast(1.3)},
	{"SDK app, 3 steps, 200 in flight, app CPU / world-postgres'", sdkRatio("3 steps", 200, appPerRun), "≤ 0.9",
		atMost(0.9)},
	{"SDK app, 3 steps, 200 in flight, Postgres CPU / world-postgres'", sdkRatio("3 steps", 200, postgresPerRun),
		"≤ 0.4", atMost(0.4)},
	{"Go SDK, 3 steps, each on disk, p50 / the contract's", goRatio(bySDK, byContract, 1, medianOf), "≤ 0.5", atMost(0.5)},
	{"Go SDK, 3 steps, each on disk, 200 in flight, runs /s / the contract's",
		goRatio(bySDK, byContract, 200, row.perSecond), "≥ 2", atLeast(2)},
	{"Go SDK, 3 steps in batches, 200 in flight, runs /s", goRuns(bySDKBatch, 200), "≥ 600", atLeast(600)},
	{"Go SDK, warm call on the longest log / on the shortest, p50", warmGrowth, "0.8 to 1.2", within(0.8, 1.2)},
}

// variantRatio compares two variants of a case.
func variantRatio(
	part, of, a, b string, clients int, value func(row) float64,
) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		merged := merge(rows[part])
		x, ok1 := find(merged, key{of: of, variant: a, clients: clients})
		y, ok2 := find(merged, key{of: of, variant: b, clients: clients})
		return ratio(value(x), value(y)), ok1 && ok2
	}
}

// flowRatio compares runs of a flow with those by the contract.
func flowRatio(clients int, of func(row) float64) func(map[string][]row) (float64, bool) {
	return variantRatio("engine", flowCase, flowDriver.name, "contract", clients, of)
}

func onSDK(what string, clients int) key { return key{of: what, variant: onStepwell, clients: clients} }

// sdkRatio compares Stepwell with the other backend.
func sdkRatio(what string, clients int, of func(row) float64) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		k := onSDK(what, clients)
		is := pairwise(rows["sdk"], k, counterpart(k), of)
		return is, is > 0
	}
}

func medianOf(r row) float64 { return r.Latency.P50 }

func resumed(variant string) key { return key{of: "hook resumed to code, idle", variant: variant} }

func within(low, high float64) func(float64) bool {
	return func(is float64) bool { return is >= low && is <= high }
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
		if g.met(is) {
			met = "yes"
		}
		t.add(g.what, number(is), g.want, met)
	}
	return "## Targets\n\n" + t.String()
}

func ofFloor(workload string, clients int) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		k := key{of: workload, variant: "server", clients: clients}
		floor, ok := fastest(merge(rows["append"]), k)
		return pairwise(rows["append"], k, floor.key(), row.perSecond), ok
	}
}

func appendLatency(rows map[string][]row) (float64, bool) {
	merged, k := merge(rows["append"]), key{of: "append", variant: "server", clients: 1}
	floor, ok1 := fastest(merged, k)
	server, ok2 := find(merged, k)
	return ratio(server.Latency.P50, floor.Latency.P50), ok1 && ok2
}

func mostRuns(variant string) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (most float64, ok bool) {
		for _, r := range merge(rows["engine"]) {
			if r.Case == "seq-3" && r.Variant == variant && r.Rate == 0 {
				most, ok = max(most, r.perSecond()), true
			}
		}
		return most, ok
	}
}

func latencyOf(part string, k key) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		r, ok := find(merge(rows[part]), k)
		return r.Latency.P50, ok
	}
}

func idleCPU(rows map[string][]row) (float64, bool) {
	r, ok := find(rows["idle"], key{of: "idle server"})
	return ratio(r.ServerCPU+r.PostgresCPU, r.Seconds) * 100, ok
}

func idleStatements(rows map[string][]row) (float64, bool) {
	r, ok := find(rows["idle"], key{of: "idle server"})
	return ratio(float64(r.Statements), r.Seconds), ok
}

func readCPU(rows map[string][]row) (float64, bool) {
	r, ok := find(merge(rows["growth"]), key{of: "read the log", size: 10_000})
	return r.per(r.ServerCPU) * 1000, ok
}

// growthOf returns the cost of an operation at the largest size divided by that at the smallest, for the worst number
// of clients.
func growthOf(of string) func(map[string][]row) (float64, bool) {
	return func(rows map[string][]row) (float64, bool) {
		merged := merge(rows["growth"])
		merged = slices.DeleteFunc(merged, func(r row) bool { return r.Case != of })
		worst := 0.0
		for _, big := range merged {
			for _, small := range merged {
				if small.Clients == big.Clients && small.Size < big.Size {
					cost := func(r row) float64 { return r.per(r.ServerCPU + r.PostgresCPU) }
					worst = max(worst, ratio(cost(big), cost(small)))
				}
			}
		}
		return worst, worst > 0
	}
}

// String formats the key for errors.
func (k key) String() string {
	return fmt.Sprintf("%s by %s, %d clients, size %d, %g/s", k.of, k.variant, k.clients, k.size, k.rate)
}
