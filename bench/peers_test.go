package main

import (
	"strings"
	"testing"
	"time"
)

// TestEmbeddedCarriesOutAllLoads: the app with a server in its process ends runs of each shape, and is stopped without an
// error.
func TestEmbeddedCarriesOutAllLoads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts Postgres and a server")
	}
	c, err := startCluster(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	of := &contender{meter: meter{cluster: c}}
	if err := startEmbedded(t.Context(), nil, of); err != nil {
		t.Fatal(err)
	}
	for _, l := range peerLoads {
		got, err := of.load(t.Context(), l.shape, min(l.inFlight, 4), time.Millisecond)
		if err != nil || got.first != nil || got.Ops < int64(min(l.inFlight, 4)) {
			t.Errorf("%s: %d runs ended, %v and %v", l.name, got.Ops, err, got.first)
		}
	}
	if err := of.stop(); err != nil {
		t.Error(err)
	}
}

// TestReportPeers checks that Stepwell is compared with the best peer, by rate or by cost, and that the report names peers
// that could not be measured.
func TestReportPeers(t *testing.T) {
	t.Parallel()
	of := func(variant string, inFlight int, ops int64, cpu float64) row {
		return row{Case: threeSteps, Variant: variant, Clients: inFlight, Round: 1, Ops: ops, Seconds: 1, FunctionCPU: cpu,
			Latency: quantiles{N: ops, P50: 1000 / float64(ops)}, About: "version 1"}
	}
	got := render([]results{{Part: "peers", Rows: []row{
		of(bySDK, 1, 100, 0.5), of(bySDK, 64, 500, 1), of(bySDK, 200, 600, 1.2), of(byFlowOnly, 200, 300, 1.2),
		of(byEmbedded, 1, 250, 0.4), of(byEmbedded, 200, 480, 0.4),
		of(onDBOS, 1, 200, 0.5), of(onDBOS, 64, 400, 0.4), of(onDBOS, 200, 400, 0.4), of(onRestate, 64, 250, 0.5),
		of(onRestate, 200, 500, 1),
		{Case: notHad, Variant: "Other", About: "no network"},
	}}})
	for _, want := range []string{
		"| Go SDK, 3 steps, each on disk, p50 / DBOS' | 2.00 | ≤ 1.3 | **no** |",
		"| Go SDK, 3 steps, each on disk, 64 in flight, runs /s / the best peer's | 1.25 | ≥ 1.2 | yes |",
		"| Go SDK, 3 steps, each on disk, 200 in flight, runs /s / the best peer's | 1.20 | ≥ 1.2 | yes |",
		"| Go SDK, 3 steps, each on disk, 200 in flight, all CPU / the best peer's | 2.00 | ≤ 1 | **no** |",
		"| Go SDK, embedded, 3 steps, p50 / DBOS' | 0.80 | ≤ 1 | yes |",
		"| Go SDK, embedded, 3 steps, 200 in flight, runs /s / DBOS' | 1.20 | ≥ 1.3 | **no** |",
		"| flow, 3 steps, 200 in flight, runs /s / the best peer's | 0.60 | ≥ 1 | **no** |",
		"| DBOS | 5.00 | 0 | 2.50 | 400 | 2.50 | 0 | 1.00 | 400 | 2.50 | 0 | 1.00 | 1.00 | 0 |",
		"| DBOS |  |  |  |  |  |  |  |  |\n",
		"| Restate | version 1 |",
		"| Other | no network |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report has no %q:\n%s", want, got)
		}
	}
}
