package main

import (
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
	c, err := startCluster(t.Context())
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
