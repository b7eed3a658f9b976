package main

import (
	"context"
	"errors"
	"time"
)

// idleServer is the key of the only row.
var idleServer = key{of: "idle server"}

// measureIdle measures the CPU time and the load on Postgres of a server with nothing to do.
func measureIdle(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	time.Sleep(b.idle / 10) // wait until what came before is over
	commits := func() (n int64, err error) {
		// Sessions report their transactions up to ten seconds late, which hardly matters over the window.
		err = s.cluster.conn.QueryRow(ctx, `
			SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1`, s.database).Scan(&n)
		return n, err
	}
	before, err := commits()
	if err != nil {
		return nil, err
	}
	r, err := s.measure(ctx, row{Case: idleServer.of}, func() (*sample, error) {
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(b.idle):
			return &sample{Took: time.Since(began), Latency: newLatencies()}, nil
		}
	})
	if err != nil {
		return nil, err
	}
	after, err := commits()
	if err != nil {
		return nil, err
	}
	r.Counts = map[string]float64{"commits": float64(after - before)}
	say("idle: %.2f %% of a core, %.1f statements/s", (r.ServerCPU+r.PostgresCPU)/r.Seconds*100,
		float64(r.Statements)/r.Seconds)
	return []row{r}, nil
}
