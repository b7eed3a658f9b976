package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The variants of the part sdkgo.
const (
	byContract = "contract, remote steps"
	bySDK      = "SDK, each step"
	bySDKBatch = "SDK, batches"
	floorEach  = "floor, 4 commits"

	threeSteps  = "3 steps"
	fiftyAtOnce = "50 steps at once"
)

// measureSDKGo measures the Go SDK: short runs against the same by the contract with remote steps and the floor, and
// steps at once.
func measureSDKGo(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	ways := []struct{ variant, deployment, workflow string }{
		{byContract, contractDeployment, workflowPrefix + "seq-3"},
		{bySDK, goDeployment, eachStep.Name()},
		{bySDKBatch, goDeployment, batches.Name()},
	}
	for _, n := range b.goInFlight {
		for _, w := range ways {
			r, err := b.goRow(ctx, s, row{Case: threeSteps, Variant: w.variant, Clients: n}, w.deployment, w.workflow, "seq-3")
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		r, err := b.floorOfRuns(ctx, s, min(n, mostFloorClients))
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	for _, w := range ways[1:] {
		r, err := b.goRow(ctx, s, row{Case: fiftyAtOnce, Variant: w.variant, Clients: 1}, w.deployment, w.workflow, "wide-50")
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// goRow measures one kind of run in a closed loop, after a warm-up.
func (b *bench) goRow(ctx context.Context, s *testbed, r row, deployment, workflow, shape string) (row, error) {
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		return s.execute(ctx, deployment, workflow, shape)
	}
	closedLoop(ctx, r.Clients, b.warm, once)
	r, err := s.measure(ctx, r, func() (*sample, error) { return closedLoop(ctx, r.Clients, b.engine, once), nil })
	if err != nil {
		return r, err
	}
	say("sdkgo %s %s, %d in flight: %.0f/s, p50 %.1f ms", r.Case, r.Variant, r.Clients, r.perSecond(), r.Latency.P50)
	return r, s.awaitEmptyQueue(ctx)
}

// mostFloorClients is how many connections the floor has at most.
const mostFloorClients = 32

// floorOfRuns measures four commits of a row, one after the other, which is what a run of three steps that are on disk
// one by one needs at least.
func (b *bench) floorOfRuns(ctx context.Context, s *testbed, clients int) (row, error) {
	r := row{Case: threeSteps, Variant: floorEach, Clients: clients}
	conns := make([]*pgx.Conn, clients)
	for i := range conns {
		conn, err := s.cluster.open(ctx, s.database)
		if err != nil {
			return r, err
		}
		defer func() { _ = conn.Close(ctx) }()
		conns[i] = conn
	}
	_, err := conns[0].Exec(ctx, `
		CREATE TABLE IF NOT EXISTS floor_of_runs (id bigserial PRIMARY KEY, run text, data jsonb)`)
	if err != nil {
		return r, fmt.Errorf("create the table of the floor: %w", err)
	}
	once := func(ctx context.Context, client int, _ time.Time) (time.Time, error) {
		run := newRunID()
		for range 4 {
			_, err := conns[client].Exec(ctx, `INSERT INTO floor_of_runs (run, data) VALUES ($1, '{"n": 1}')`, run)
			if err != nil {
				return time.Time{}, err
			}
		}
		return time.Now(), nil
	}
	return r.with(closedLoop(ctx, clients, b.engine, once)), nil
}
