package main

import (
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.123: "0.12", 12.345: "12.3", 123.4: "123", 1234.5: "1,234", 1_234_567: "1,234,567", -1234: "-1,234",
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
	if got := pairwise(appends, got.key(), got.as(byFloor), row.perSecond); got != 0.625 {
		t.Errorf("%g of the floor, want the mean of 1/2 and 3/4", got)
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	got := render([]results{
		{Part: "append", Rows: appends},
		{Part: "idle", Rows: []row{{Case: "idle server", Seconds: 30, ServerCPU: 0.15, Statements: 300}}},
		{Part: "engine", Rows: []row{{Case: "seq-1", Variant: "wire", Clients: 8, Ops: 90, Errors: 10, Error: "busy", Seconds: 1}}},
	})
	for _, want := range []string{
		"| append, 32 clients, of the floor | 0.62 | ≥ 0.5 | yes |",
		"| idle, % of a core (server and Postgres) | 0.50 | ≤ 1 | yes |",
		"| idle, statements /s | 10.0 | ≤ 4 | **no** |",
		"| append | 32 | 1,500 | 1,000 | 0.62 | 3.50 | 0 | 1.67 | 2.10 |",
		"| wire | 8 | 90.0 | 0 | 0 |  |  |  |  |  |  | 0 | 0 |",
		"| seq-1 by wire, 8 clients, size 0, 0/s | `busy` | 10.0 | 90.0 |",
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
		{Case: "seq-3", Variant: "wire", Size: 2, Rate: 400, Ops: 300, Seconds: 2, Counts: map[string]float64{countRefused: 250, countRetry: 5}},
		{Case: "seq-3", Variant: "contract", Clients: 200, Ops: 900, Seconds: 1},
	}
	if got, ok := leastOfBest("wire")(map[string][]row{"overload": rows}); !ok || got != 0.75 {
		t.Errorf("got %g, %v; want 150 of 200", got, ok)
	}
	if _, ok := leastOfBest("contract")(map[string][]row{"overload": rows}); ok {
		t.Error("a goal without an open loop was measured")
	}
	got := render([]results{{Part: "overload", Rows: rows}})
	if want := "| wire | 2 × | 400 | 150 | 0.75 | 250 | 5.00 |"; !strings.Contains(got, want) {
		t.Errorf("the report has no %q:\n%s", want, got)
	}
	if want := "| wire | 200 in flight |  | 200 | 1.00 |  |  |"; !strings.Contains(got, want) {
		t.Errorf("the report has no %q:\n%s", want, got)
	}
}
