package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// appendWorkflow is the workflow of the runs that receive appends.
const appendWorkflow = workflowPrefix + "seq-1"

// workload is an operation that clients repeat.
type workload struct {
	name string // also selects the pgbench script
	hot  bool   // all clients use one run instead of one each
}

var workloads = []workload{{"append", false}, {"append", true}, {"send", false}}

// The variants of a workload: the server, and the same rows written by pgbench.
const (
	byServer = "server"
	byFloor  = "one statement"
)

func (w workload) String() string {
	if w.hot {
		return w.name + ", one run"
	}
	return w.name
}

// measureAppends measures the floor and the server alternately: A B A B.
func measureAppends(ctx context.Context, b *bench) ([]row, error) {
	s, err := b.newTestbed(ctx, "api") // no deliveries, only appends
	if err != nil {
		return nil, err
	}
	rows, err := b.appendRows(ctx, s)
	return rows, errors.Join(err, s.clear())
}

func (b *bench) appendRows(ctx context.Context, s *testbed) ([]row, error) {
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	samples, err := s.samples(ctx, conn)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, w := range workloads {
		for _, clients := range b.clients {
			for round := range b.rounds {
				cell, err := b.appendCell(ctx, s, samples, w, row{Case: w.String(), Clients: clients, Round: round + 1})
				if err != nil {
					return nil, err
				}
				rows = append(rows, cell...)
			}
		}
	}
	return rows, nil
}

// samples performs each operation once on the server, and reads the rows that it wrote.
func (s *testbed) samples(ctx context.Context, conn *pgx.Conn) (sampleRows, error) {
	t, err := s.newTarget(ctx, 1)
	if err != nil {
		return nil, err
	}
	for _, what := range []string{"append", "send"} {
		if err := t.perform(ctx, s.client, 0, what); err != nil {
			return nil, err
		}
	}
	rows := sampleRows{}
	for _, of := range []struct{ table, where string }{
		{"events", "type = 'step_created'"}, {"steps", "true"}, {"messages", "true"}, {"message_keys", "true"},
	} {
		if rows[of.table], err = sampleOf(ctx, conn, of.table, of.where); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// target is a set of started runs for the clients to append to.
type target struct {
	testbed *testbed
	prefix  string
	steps   []atomic.Int64 // number of steps created by each client
	hot     bool
}

// newTarget starts a run for each client. Their IDs differ only in the last four digits.
func (s *testbed) newTarget(ctx context.Context, clients int) (*target, error) {
	id := newRunID()
	t := &target{testbed: s, prefix: id[:len(id)-4], steps: make([]atomic.Int64, clients)}
	for client := range clients {
		for _, m := range []eventMeta{creation("run_created", appendWorkflow), newEvent("run_started", "")} {
			if _, err := s.client.post(ctx, t.run(client), m); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

func (t *target) run(client int) string {
	if t.hot {
		client = 0
	}
	return fmt.Sprintf("%s%04d", t.prefix, client)
}

// perform appends a step, or sends a message that executes one.
func (t *target) perform(ctx context.Context, c *client, client int, what string) error {
	run := t.run(client)
	step := fmt.Sprintf("step_%s%04d%06d", t.prefix[5:21], client, t.steps[client].Add(1))
	if what == "send" {
		return c.sendStep(ctx, appendWorkflow, run, step)
	}
	_, err := c.append(ctx, run, stepCreated(appendWorkflow, step))
	return err
}

// appendCell measures one round: the floor, and the server.
func (b *bench) appendCell(ctx context.Context, s *testbed, samples sampleRows, w workload, r row) ([]row, error) {
	var rows []row
	for _, by := range []string{byFloor, byServer} {
		t, err := s.newTarget(ctx, r.Clients)
		if err != nil {
			return nil, err
		}
		t.hot = w.hot
		if err := s.cluster.checkpoint(ctx); err != nil {
			return nil, err
		}
		r.Variant = by
		measured, err := b.appendRow(ctx, t, samples, w, r)
		if err != nil {
			return nil, fmt.Errorf("%s by %s, %d clients: %w", w, by, r.Clients, err)
		}
		say("%s by %s, %d clients: %.0f/s, p50 %.2f ms", w, by, r.Clients, measured.perSecond(), measured.Latency.P50)
		rows = append(rows, measured)
	}
	return rows, nil
}

func (b *bench) appendRow(ctx context.Context, t *target, samples sampleRows, w workload, r row) (row, error) {
	s, c := t.testbed, t.testbed.client.lean()
	do := func(ctx context.Context, client int, _ time.Time) (time.Time, error) {
		err := t.perform(ctx, c, client, w.name)
		return time.Now(), err
	}
	if r.Variant == byServer {
		closedLoop(ctx, r.Clients, b.warm, do)
	}
	return s.measure(ctx, r, func() (*sample, error) {
		if r.Variant == byServer {
			return closedLoop(ctx, r.Clients, b.window, do), nil
		}
		return pgbench{
			cluster: s.cluster, database: s.database, script: samples.script(w),
			prefix: t.prefix, clients: r.Clients, window: b.window, times: b.floorTimes,
		}.run(ctx)
	})
}
