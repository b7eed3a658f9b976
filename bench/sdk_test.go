package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestAppEnvironment(t *testing.T) {
	t.Parallel()
	got := appEnvironment([]string{"PATH=/bin", "WORKFLOW_TARGET_WORLD=local", "NODE_ENV=development", "STEPWELL_URL=x",
		"DATABASE_URL=y", "VERCEL=1", "https_proxy=z", "HTTP_PROXY=z", "PORT=1", "SUPPORT=1"}, "PORT=0", "STEPWELL_URL=here")
	want := []string{"PATH=/bin", "SUPPORT=1", "PORT=0", "STEPWELL_URL=here"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMeasuredSample checks that the sample counts operations, each of which may have several latencies.
func TestMeasuredSample(t *testing.T) {
	t.Parallel()
	got := row{}.with(measured{Seconds: 2, Latencies: []float64{10, 20, 30, -1}}.sample(2))
	if got.Ops != 2 || got.perSecond() != 1 || got.Latency.N != 4 || got.Latency.Max < 29.9 || got.Latency.Max > 30.1 {
		t.Errorf("got %+v", got)
	}
}

// sdkRows are two rounds on both backends.
var sdkRows = []row{
	sdkRow("1 step", onStepwell, 1, 1, 30, 0.2), sdkRow("1 step", onWorldPostgres, 1, 1, 20, 0.4),
	sdkRow("1 step", onStepwell, 1, 2, 20, 0.1), sdkRow("1 step", onWorldPostgres, 1, 2, 20, 0.4),
	sdkRow("3 steps", onStepwell, 200, 1, 900, 0.4), sdkRow("3 steps", onWorldPostgres, 200, 1, 1000, 1),
}

func sdkRow(what, on string, clients, round int, p50, postgres float64) row {
	return row{Case: what, Variant: on, Clients: clients, Round: round, Ops: 100, Seconds: 2,
		Latency: quantiles{N: 100, P50: p50, P90: p50, Max: p50}, PostgresCPU: postgres, FunctionCPU: 1.5, Statements: 4000}
}

func TestReportSDK(t *testing.T) {
	t.Parallel()
	got := render([]results{{Part: "sdk", Rows: sdkRows}})
	for _, want := range []string{
		"| SDK app, 1 step, p50 / world-postgres' | 1.25 | ≤ 0.9 | **no** |",
		"| SDK app, 3 steps, 200 in flight, runs /s / world-postgres' | 1.00 | ≥ 1.3 | **no** |",
		"| SDK app, 3 steps, 200 in flight, app CPU / world-postgres' | 1.00 | ≤ 0.9 | **no** |",
		"| SDK app, 3 steps, 200 in flight, Postgres CPU / world-postgres' | 0.40 | ≤ 0.4 | yes |",
		"| 1 step | 1 | 200 | 25.0 | 25.0 | 30.0 | 20.0 | 20.0 | 20.0 | 1.25 |  |  |  |",
		"| 3 steps | 200 | 100 | 900 | 900 | 900 | 1,000 | 1,000 | 1,000 | 0.90 | 50.0 | 50.0 | 1.00 |",
		"| 1 step | Stepwell | 1 | 15.0 | 1.00 | 0 | 1.50 | 0.38 | 16.5 | 40.0 | 0 |",
		"| 1 step | world-postgres | 1 | 15.0 |  | 0 | 4.00 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "10 steps") {
		t.Error("the report contains a case that was not measured")
	}
}
