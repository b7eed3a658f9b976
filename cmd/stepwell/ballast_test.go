package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// TestBallastDelaysGC: unless GOGC or GOMEMLIMIT is set.
func TestBallastDelaysGC(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		if newBallast(func(name string) (string, bool) { return "", name == set }) != nil {
			t.Errorf("got a ballast although %s is set", set)
		}
	}
	ballast := newBallast(func(string) (string, bool) { return "", false })
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	if got := goal[0].Value.Uint64(); got < 2*ballastSize {
		t.Errorf("the first collection is at %d bytes, want at least %d", got, 2*ballastSize)
	}
	runtime.KeepAlive(ballast)
}
