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
	callOnALog  = "call on a log"
	warmVariant = "warm"
	coldVariant = "cold"
)

// measureSDKGo measures the Go SDK: short runs against the same by the contract with remote steps and the floor, steps
// at once, and calls of runs with logs of several lengths.
func measureSDKGo(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	for _, n := range b.goInFlight {
		for _, v := range []struct {
			variant string
			run     func(context.Context) (time.Time, report, error)
		}{
			{byContract, func(ctx context.Context) (time.Time, report, error) {
				return runByContract(ctx, s, workflowPrefix+"seq-3")
			}},
			{bySDK, func(ctx context.Context) (time.Time, report, error) {
				return runBySDK(ctx, s, eachStep.Name(), "seq-3")
			}},
			{bySDKBatch, func(ctx context.Context) (time.Time, report, error) {
				return runBySDK(ctx, s, batches.Name(), "seq-3")
			}},
		} {
			r, err := b.goRow(ctx, s, row{Case: threeSteps, Variant: v.variant, Clients: n}, v.run)
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
	for _, v := range [][2]string{{bySDK, eachStep.Name()}, {bySDKBatch, batches.Name()}} {
		r, err := b.goRow(ctx, s, row{Case: fiftyAtOnce, Variant: v[0], Clients: 1},
			func(ctx context.Context) (time.Time, report, error) { return runBySDK(ctx, s, v[1], "wide-50") })
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	calls, err := b.goLogRows(ctx, s)
	return append(rows, calls...), err
}

// runBySDK starts a run of the SDK's app, sends it a message if its shape wants one, and waits for its end.
func runBySDK(ctx context.Context, s *testbed, workflow, shape string) (time.Time, report, error) {
	run, err := s.execute(ctx, goDeployment, workflow, shape)
	return time.Now(), report{Run: run}, err
}

// goRow measures one kind of run in a closed loop, after a warm-up.
func (b *bench) goRow(
	ctx context.Context, s *testbed, r row, run func(context.Context) (time.Time, report, error),
) (row, error) {
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		done, _, err := run(ctx)
		return done, err
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

// logRows measures calls of runs that get a payload, with logs of several lengths.
func (b *bench) goLogRows(ctx context.Context, s *testbed) (rows []row, err error) {
	for _, size := range b.logSizes {
		for _, v := range [][2]string{{warmVariant, goDeployment}, {coldVariant, coldGoDeployment}} {
			run, err := s.client.startRunOn(ctx, v[1], "long-log", size)
			if err != nil {
				return nil, err
			}
			resume := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) { return s.resume(ctx, run) }
			for deadline := time.Now().Add(runTimeout); ; time.Sleep(20 * time.Millisecond) {
				if _, err = resume(ctx, 0, time.Time{}); err == nil { // the hook is open
					break
				}
				if time.Now().After(deadline) {
					return nil, fmt.Errorf("make a log of %d events: %w", size, err)
				}
			}
			r, err := s.timed(ctx, row{Case: callOnALog, Variant: v[0], Size: size}, b.resumes, b.pause, resume)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
			if err := s.client.resumeRun(ctx, run, 0); err != nil { // ends it
				return nil, err
			}
		}
	}
	return rows, nil
}

// resume sends a payload to a run, and returns when the function has dealt with it.
func (s *testbed) resume(ctx context.Context, run string) (time.Time, error) {
	sent := time.Now().UnixNano()
	if err := s.client.resumeRun(ctx, run, sent); err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		select {
		case r := <-s.reports.resumed:
			if r.Sent == sent { // else an earlier one was dealt with again
				return time.Unix(0, r.At), nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("a payload was not dealt with: %w", ctx.Err())
		}
	}
}
