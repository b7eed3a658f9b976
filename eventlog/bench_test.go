package eventlog

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// BenchmarkSteps has clients append steps, each to its own run or all to one.
func BenchmarkSteps(b *testing.B) {
	for _, to := range []struct {
		name string
		runs int // 0 for one per client
	}{{"own_runs", 0}, {"one_run", 1}} {
		for _, clients := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/clients=%d", to.name, clients), func(b *testing.B) {
				benchmarkSteps(b, clients, cmp.Or(to.runs, clients))
			})
		}
	}
}

func benchmarkSteps(b *testing.B, clients, runs int) {
	b.Helper()
	pool := testdb.Pool(b)
	l := New(pool, pg.NewHub(pool, "hints", slog.New(slog.DiscardHandler)), noQueue{}, (&clock{at: day}).now)
	ids := make([]entities.RunID, runs)
	for i := range ids {
		ids[i] = newRunID()
		for _, r := range []Request{runCreated(ids[i]), on(ids[i], "run_started", "")} {
			if _, err := l.Append(b.Context(), home, r); err != nil {
				b.Fatal(err)
			}
		}
	}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var working sync.WaitGroup
	b.ResetTimer()
	for client := range clients {
		working.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				r := on(ids[client%runs], "step_created", fmt.Sprintf("step_%d", i))
				if _, err := l.Append(b.Context(), home, r); err != nil {
					b.Error(err)
					return
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	working.Wait()
	b.StopTimer()
	slices.Sort(took)
	for _, q := range []struct {
		of   float64
		name string
	}{{0.5, "p50-ms"}, {0.99, "p99-ms"}} {
		at := took[int(math.Ceil(q.of*float64(b.N)))-1]
		b.ReportMetric(float64(at)/float64(time.Millisecond), q.name)
	}
}
