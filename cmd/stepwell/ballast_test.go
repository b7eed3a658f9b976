package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// Ensure that the collector begins later with a ballast, and that who has set it up otherwise gets none.
func TestBallast(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		if newBallast(func(name string) (string, bool) { return "", name == set }) != nil {
			t.Errorf("there is a ballast although %s is set", set)
		}
	}
	ballast := newBallast(func(string) (string, bool) { return "", false })
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	if got := goal[0].Value.Uint64(); got < 2*ballastSize {
		t.Errorf("the collector begins at %d bytes, want %d at least", got, 2*ballastSize)
	}
	runtime.KeepAlive(ballast)
}
