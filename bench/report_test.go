package main

import (
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "", 0.123: "0.12", 12.345: "12.3", 123.4: "123", 1234.5: "1,234", 1_234_567: "1,234,567", -1234: "-1,234",
	} {
		if got := number(v); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
}

// appends are two rounds in which the server reaches half and three quarters of the floor's rate.
var appends = []row{
	{Case: "append", Variant: byFloor, Clients: 32, Round: 1, Ops: 1000, Seconds: 1, Latency: quantiles{N: 1000, P50: 1}},
	{Case: "append", Variant: byServer, Clients: 32, Round: 1, Ops: 500, Seconds: 1, Latency: quantiles{N: 500, P50: 2}},
	{Case: "append", Variant: byFloor, Clients: 32, Round: 2, Ops: 2000, Seconds: 1, Latency: quantiles{N: 2000, P50: 2}},
	{Case: "append", Variant: byServer, Clients: 32, Round: 2, Ops: 1500, Seconds: 1, Latency: quantiles{N: 1500, P50: 4}, WAL: 1000},
}

func TestMerge(t *testing.T) {
	t.Parallel()
	merged := merge(appends)
	if len(merged) != 2 {
		t.Fatalf("%d rows, want 2", len(merged))
	}
	got, ok := find(merged, key{"append", byServer, 32, 0, 0})
	if !ok || got.Ops != 2000 || got.perSecond() != 1000 || got.Latency.P50 != 3.5 || got.per(float64(got.WAL)) != 0.5 {
		t.Errorf("got %+v", got)
	}
	if floor, ok := find(merged, got.as(byFloor)); !ok || floor.Latency.P50 != 5.0/3 {
		t.Errorf("the floor is %+v", floor)
	}
}

// TestRender: the report has the columns that a part fills, its own ones too, the ratios to the variant that the part
// compares with, and the targets that were measured.
func TestRender(t *testing.T) {
	t.Parallel()
	got := render([]results{
		{Part: "append", Rows: appends},
		{Part: "idle", Rows: []row{{Case: "idle server", Ops: 30, Seconds: 30, ServerCPU: 0.15, Statements: 300}}},
		{Part: "engine", Rows: []row{{
			Case: "seq-1", Variant: "wire", Clients: 8, Ops: 90, Errors: 10, Error: "busy", Seconds: 1,
			Counts: map[string]float64{"calls": 5},
		}}},
		{Part: "peers", Rows: []row{{Case: notHad, Variant: "Other", About: "no network"}}},
	})
	for _, want := range []string{
		"| append, 32 clients, of the floor | 0.67 | ≥ 0.5 | yes |",
		"| idle, CPU of server and Postgres, ms a second | 5 | ≤ 10 | yes |",
		"| idle, statements /s | 10 | ≤ 4 | **no** |",
		"|  | variant | in flight | /s | p50 | WAL B | /s ÷ one statement | p50 ÷ one statement |\n| --- | --- | --: |",
		"| append | one statement | 32 | 1,500 | 1.67 |  |  |  |\n| append | server | 32 | 1,000 | 3.50 | 0.50 | 0.67 | 2.10 |",
		"|  | variant | first error | in flight | /s | errors | calls |",
		"| seq-1 | wire | busy | 8 | 90 | 10 | 5 |",
		"| not had | Other | no network |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "single 3-step run") {
		t.Error("the report contains a target that was not measured")
	}
}

// TestOverloadGoal: the goal compares the worst open loop with the best of all measurements.
func TestOverloadGoal(t *testing.T) {
	t.Parallel()
	rows := []row{
		{Case: "seq-3", Variant: "wire", Clients: 200, Ops: 200, Seconds: 1},
		{Case: "seq-3", Variant: "wire", Size: 1, Rate: 200, Ops: 400, Seconds: 2},
		{Case: "seq-3", Variant: "wire", Size: 2, Rate: 400, Ops: 300, Seconds: 2},
		{Case: "seq-3", Variant: "contract", Clients: 200, Ops: 900, Seconds: 1},
	}
	if got, ok := leastOfBest("wire")(map[string][]row{"overload": rows}); !ok || got != 0.75 {
		t.Errorf("got %g, %v; want 150 of 200", got, ok)
	}
	if _, ok := leastOfBest("contract")(map[string][]row{"overload": rows}); ok {
		t.Error("a goal without an open loop was measured")
	}
}

// TestFlatnessGoal: the goal compares the worst p99 of the open loops with the p50 of a single run.
func TestFlatnessGoal(t *testing.T) {
	t.Parallel()
	rows := map[string][]row{"engine": {
		{Case: "seq-3", Variant: "wire", Clients: 1, Latency: quantiles{P50: 10, P99: 90}},
		{Case: "seq-3", Variant: "wire", Clients: 200, Latency: quantiles{P50: 400, P99: 900}},
		{Case: "seq-3", Variant: "wire", Size: 25, Rate: 20, Latency: quantiles{P50: 11, P99: 40}},
		{Case: "seq-3", Variant: "wire", Size: 80, Rate: 64, Latency: quantiles{P50: 20, P99: 70}},
		{Case: "seq-3", Variant: "flow", Clients: 1, Latency: quantiles{P50: 5}},
	}}
	if got, ok := flatness("wire")(rows); !ok || got != 7 {
		t.Errorf("got %g, %v; want 70 of 10", got, ok)
	}
	if _, ok := flatness("flow")(rows); ok {
		t.Error("a goal without an open loop was measured")
	}
}
