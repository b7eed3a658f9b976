package upkeep

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// BenchmarkVerify measures how many runs of three steps are verified in a second, and the processor time of this process
// for each, without that of Postgres.
func BenchmarkVerify(b *testing.B) {
	f := newFixture(b)
	const runs = 2000
	for range runs {
		f.addSteps(b, 3)
	}
	b.ReportAllocs()
	before := processorTime(b)
	start := time.Now()
	n := 0
	for b.Loop() {
		ids, err := f.Runs(b.Context(), "", "", runs)
		if err != nil || len(ids) != runs {
			b.Fatalf("got %d runs, error %v", len(ids), err)
		}
		err = f.VerifyAll(b.Context(), ids, func(d Difference) { b.Error(d) }, func([]entities.RunID) {})
		if err != nil {
			b.Fatal(err)
		}
		n += len(ids)
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "runs/s")
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(n), "cpu-µs/run")
}

// addSteps creates a run that has completed so many steps.
func (f *fixture) addSteps(b *testing.B, steps int) {
	b.Helper()
	var begin, end []eventlog.Request
	for i := range steps {
		id := fmt.Sprintf("s%d", i)
		begin = append(begin, on(theRun, entities.EventStepCreated, id), on(theRun, entities.EventStepStarted, id))
		end = append(end, on(theRun, entities.EventStepCompleted, id))
	}
	id := f.run(b, onRun(theRun, entities.EventRunStarted))
	for _, requests := range [][]eventlog.Request{begin, end} {
		if _, err := f.AppendBatch(b.Context(), home, id, requests); err != nil {
			b.Fatal(err)
		}
	}
	f.must(b, onRun(id, entities.EventRunCompleted))
}

// processorTime returns how long processors have worked for this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
