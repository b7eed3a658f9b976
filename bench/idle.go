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
	r.Ops = int64(r.Seconds)
	say("idle: %.2f ms of CPU and %.1f statements a second", serverSide.of(r), statements.of(r))
	return []row{r}, nil
}
