package main

import (
	"context"
	"errors"
	"time"
)

// The variants of the part cells.
const (
	oneCell  = "one cell"
	twoCells = "two cells"
)

// cellRate is how many runs a second each cell is asked for: so few that two cells fit on two processors.
const cellRate = 80

// measureCells measures runs on one cell, which is a server with its own Postgres, and twice as many on two.
func measureCells(ctx context.Context, b *bench) (rows []row, err error) {
	second, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, second.stop()) }()
	var cells []*testbed
	defer func() {
		for _, s := range cells {
			err = errors.Join(err, s.clear())
		}
	}()
	for _, c := range []*cluster{b.cluster, second} {
		of := *b
		of.cluster = c
		s, err := of.newTestbed(ctx, "all")
		if err != nil {
			return nil, err
		}
		cells = append(cells, s)
	}
	for round := range b.rounds {
		for i, variant := range []string{oneCell, twoCells} {
			r, err := b.cellsRow(ctx, cells[:i+1], row{Case: openCase, Variant: variant, Round: round + 1})
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// cellsRow measures runs that are started in the cells in turns, after a warm-up.
func (b *bench) cellsRow(ctx context.Context, cells []*testbed, r row) (row, error) {
	r.Rate = float64(cellRate * len(cells))
	once := func(ctx context.Context, n int, _ time.Time) (time.Time, error) {
		return runByContract(ctx, cells[n%len(cells)], workflowPrefix+r.Case)
	}
	for _, s := range cells {
		if err := s.cluster.checkpoint(ctx); err != nil {
			return r, err
		}
	}
	openLoop(ctx, r.Rate, b.warm, b.grace, once)
	before, err := readAll(ctx, cells)
	if err != nil {
		return r, err
	}
	got := openLoop(ctx, r.Rate, b.open, b.grace, once)
	after, err := readAll(ctx, cells)
	if err != nil {
		return r, err
	}
	r = r.with(got).using(after.minus(before))
	say("cells %s, %.0f a second: %.0f/s, %.2f ms of server and Postgres", r.Variant, r.Rate, r.perSecond(),
		serverSide.of(r))
	return r, nil
}

// readAll returns the usage of all cells together.
func readAll(ctx context.Context, cells []*testbed) (all usage, err error) {
	for _, s := range cells {
		u, err := s.read(ctx)
		if err != nil {
			return all, err
		}
		all = all.plus(u)
		all.Load = u.Load // of one process
	}
	return all, nil
}
