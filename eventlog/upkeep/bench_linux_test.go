package upkeep

import (
	"fmt"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// BenchmarkVerify measures what it takes to verify an ended run of three steps.
func BenchmarkVerify(b *testing.B) {
	f := newFixture(b)
	const runs = 2000
	for range runs {
		f.addSteps(b, 3)
	}
	testdb.Measure(b, f.pool, runs, func() {
		ids, err := f.Runs(b.Context(), "", "", runs)
		if err != nil || len(ids) != runs {
			b.Fatalf("got %d runs, error %v", len(ids), err)
		}
		err = f.VerifyAll(b.Context(), ids, func(d Difference) { b.Error(d) }, func([]entities.RunID) {})
		if err != nil {
			b.Fatal(err)
		}
	})
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
