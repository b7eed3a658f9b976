package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// measureGrowth measures whether stored data slows down operations: those of a run with a long log, and those of all
// runs beside a million stored ones.
func measureGrowth(ctx context.Context, b *bench) ([]row, error) {
	rows, err := b.logRows(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := b.storedRows(ctx)
	return append(rows, stored...), err
}

// logRows measures appends to and reads of logs of several lengths.
func (b *bench) logRows(ctx context.Context) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "api")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	for round := range b.rounds {
		for _, size := range b.logSizes {
			cell, err := b.logCell(ctx, s, size, round+1)
			if err != nil {
				return nil, fmt.Errorf("logs of %d events: %w", size, err)
			}
			rows = append(rows, cell...)
		}
	}
	return rows, nil
}

// logCell appends to several runs, to each at most a tenth of its events, so that the logs keep about their size.
func (b *bench) logCell(ctx context.Context, s *testbed, size, round int) ([]row, error) {
	each := max(1, size/10)
	runs := make([]string, max(1, b.logAppends/each))
	for i := range runs {
		var err error
		if runs[i], err = s.longRun(ctx, size); err != nil {
			return nil, err
		}
	}
	if err := s.cluster.checkpoint(ctx); err != nil {
		return nil, err
	}
	next := 0
	appends, err := s.timed(ctx, row{Case: "append", Size: size, Round: round}, len(runs)*each, 0,
		func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
			// Alternate between the runs, so that caches affect all sizes alike.
			_, err := s.client.post(ctx, runs[next%len(runs)], stepCreated(appendWorkflow, fmt.Sprintf("step_more%d", next)))
			next++
			return time.Now(), err
		})
	if err != nil {
		return nil, err
	}
	const reads = 20
	read, err := s.timed(ctx, row{Case: "read the log", Size: size, Round: round}, reads, 0,
		func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
			events, err := s.client.log(ctx, runs[0])
			if err == nil && len(events) < size {
				err = fmt.Errorf("the log has %d events", len(events))
			}
			return time.Now(), err
		})
	return []row{appends, read}, err
}

// timed measures an operation a number of times, one after the other, with pauses.
func (s *testbed) timed(ctx context.Context, r row, times int, pause time.Duration, do operation) (row, error) {
	r, err := s.measure(ctx, r, func() (*sample, error) { return inTurn(ctx, times, pause, do), nil })
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Case, err)
	}
	say("%s %s, %d events: p50 %.2f ms, p99 %.2f ms", r.Case, r.Variant, r.Size, r.Latency.P50, r.Latency.P99)
	return r, nil
}

// longRun creates a run whose log has the given number of events, mostly of completed steps.
func (s *testbed) longRun(ctx context.Context, events int) (string, error) {
	run := newRunID()
	for _, m := range []eventMeta{creation("run_created", appendWorkflow), newEvent("run_started", "")} {
		if _, err := s.client.post(ctx, run, m); err != nil {
			return "", err
		}
	}
	const most = 400 // steps per batch, each with at most two events
	left, step := events-2, 0
	for left > 0 {
		n := min(most, (left+2)/3)
		var begin, end []eventMeta
		for range n {
			id := stepID(run, step)
			step++
			begin = append(begin, stepCreated(appendWorkflow, id), stepStarted(id))
			end = append(end, stepCompleted(appendWorkflow, id))
		}
		for _, batch := range [][]eventMeta{begin, end} {
			batch = batch[:min(left, len(batch))]
			if len(batch) == 0 {
				break
			}
			if err := s.client.postAll(ctx, run, batch); err != nil {
				return "", err
			}
			left -= len(batch)
		}
	}
	return run, nil
}

// storedRows measures appends and runs on an empty database and on one with many runs, alternately: A B A B.
func (b *bench) storedRows(ctx context.Context) (rows []row, err error) {
	many, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, many.clear()) }()
	took, err := b.fill(ctx, many, b.stored)
	if err != nil {
		return nil, fmt.Errorf("store %d runs: %w", b.stored, err)
	}
	say("stored %d runs in %s", b.stored, took.Round(time.Second))
	empty, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.clear()) }()
	for round := range b.rounds {
		for _, on := range []struct {
			testbed *testbed
			stored  int
		}{{empty, 0}, {many, b.stored}} {
			cell, err := b.storedCell(ctx, on.testbed, on.stored, round+1)
			if err != nil {
				return nil, err
			}
			rows = append(rows, cell...)
		}
	}
	return rows, nil
}

// appendStored is the case of appends beside stored runs.
const appendStored = "append, by stored runs"

func (b *bench) storedCell(ctx context.Context, s *testbed, stored, round int) ([]row, error) {
	var rows []row
	for _, clients := range []int{b.clients[0], b.clients[len(b.clients)-1]} {
		t, err := s.newTarget(ctx, clients)
		if err != nil {
			return nil, err
		}
		r := row{Case: "append", Variant: byServer, Clients: clients, Round: round}
		if r, err = b.appendRow(ctx, t, nil, workloads[0], r); err != nil {
			return nil, err
		}
		r.Case, r.Size = appendStored, stored
		say("append, %d stored runs, %d clients: %.0f/s, p50 %.2f ms", stored, clients, r.perSecond(), r.Latency.P50)
		rows = append(rows, r)
		for _, d := range drivers {
			r, err := b.engineRow(ctx, s, d, row{Case: "seq-3", Variant: d.name, Clients: clients, Round: round})
			if err != nil {
				return nil, err
			}
			r.Case, r.Size = "seq-3, by stored runs", stored
			rows = append(rows, r)
		}
	}
	return rows, nil
}
