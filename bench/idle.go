package main

import (
	"context"
	"errors"
	"time"
)

// measureIdle measures the CPU time and the load on Postgres of a server with nothing to do.
func measureIdle(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	r, err := b.idleRow(ctx, s)
	r.Case = "idle server"
	return []row{r}, err
}

// idleRow measures a server while nothing happens.
func (b *bench) idleRow(ctx context.Context, s *testbed) (r row, err error) {
	time.Sleep(b.idle / 10) // wait until what came before is over
	commits := func() (n int64, err error) {
		// Sessions report their transactions up to ten seconds late, which hardly matters over the window.
		err = s.cluster.conn.QueryRow(ctx, `
			SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1`, s.database).Scan(&n)
		return n, err
	}
	before, err := commits()
	if err == nil {
		err = s.cluster.resetStatements(ctx)
	}
	if err != nil {
		return r, err
	}
	began := time.Now()
	u, err := s.during(ctx, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.idle):
			return nil
		}
	})
	if err != nil {
		return r, err
	}
	took := time.Since(began)
	after, err := commits()
	if err != nil {
		return r, err
	}
	r = row{Seconds: took.Seconds(), Counts: map[string]float64{"commits": float64(after - before)}}
	if r.Profile, err = s.cluster.topStatements(ctx); err != nil {
		return r, err
	}
	r = r.using(u)
	say("idle: %.2f %% of a core, %.1f statements/s", (r.ServerCPU+r.PostgresCPU)/r.Seconds*100,
		float64(r.Statements)/r.Seconds)
	return r, nil
}
