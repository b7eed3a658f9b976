package main

import (
	"reflect"
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
