package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

var workloads = []workload{{"append", false}, {"append", true}, {"send", false}, {"append and send", false}}

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
	rows, err := b.countRows(ctx, s, conn, samples)
	if err != nil {
		return nil, err
	}
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
	if err := t.perform(ctx, s.client, 0, "append and send"); err != nil {
		return nil, err
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

// perform appends a step, sends a message, or does both, like a client that schedules a step.
func (t *target) perform(ctx context.Context, c *client, client int, what string) error {
	run := t.run(client)
	step := fmt.Sprintf("step_%s%04d%06d", t.prefix[5:21], client, t.steps[client].Add(1))
	if strings.HasPrefix(what, "append") {
		if _, err := c.append(ctx, run, stepCreated(appendWorkflow, step)); err != nil {
			return err
		}
	}
	if strings.HasSuffix(what, "send") {
		return c.sendStep(ctx, appendWorkflow, run, step)
	}
	return nil
}

// appendCell measures one round: every shape of the floor, and the server.
func (b *bench) appendCell(ctx context.Context, s *testbed, samples sampleRows, w workload, r row) ([]row, error) {
	var rows []row
	for _, shape := range append(shapesOf(w.name), "server") {
		t, err := s.newTarget(ctx, r.Clients)
		if err != nil {
			return nil, err
		}
		t.hot = w.hot
		if err := s.cluster.checkpoint(ctx); err != nil {
			return nil, err
		}
		r.Variant = shape
		measured, err := b.appendRow(ctx, t, samples, w, r)
		if err != nil {
			return nil, fmt.Errorf("%s by %s, %d clients: %w", w, shape, r.Clients, err)
		}
		say("%s by %s, %d clients: %.0f/s, p50 %.2f ms", w, shape, r.Clients, measured.perSecond(), measured.Latency.P50)
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
	if r.Variant == "server" {
		closedLoop(ctx, r.Clients, b.warm, do)
	}
	var got *sample
	u, err := s.during(ctx, func() (err error) {
		if r.Variant == "server" {
			got = closedLoop(ctx, r.Clients, b.window, do)
			return nil
		}
		got, err = pgbench{
			cluster: s.cluster, database: s.database, script: samples.script(w.name, floorRun(w.hot), r.Variant),
			prefix: t.prefix, clients: r.Clients, window: b.window, times: b.floorTimes,
		}.run(ctx)
		return err
	})
	if err != nil {
		return r, err
	}
	return r.with(got).using(u), nil
}

func floorRun(hot bool) string {
	if hot {
		return floorHot
	}
	return floorOwn
}

// countRows counts the rows that an operation writes, for the floor and for the server, so that the report can show
// that they are the same. Postgres' statistics are complete only after sessions have ended, so the server is restarted.
func (b *bench) countRows(ctx context.Context, s *testbed, conn *pgx.Conn, samples sampleRows) ([]row, error) {
	var rows []row
	for _, w := range []workload{workloads[0], workloads[2]} {
		for _, by := range append(shapesOf(w.name), "server") {
			t, err := s.newTarget(ctx, 1)
			if err != nil {
				return nil, err
			}
			before, err := b.rowsWritten(ctx, s, conn)
			if err != nil {
				return nil, err
			}
			if err := b.repeat(ctx, t, samples, w, by); err != nil {
				return nil, fmt.Errorf("count the rows of %s by %s: %w", w, by, err)
			}
			after, err := b.rowsWritten(ctx, s, conn)
			if err != nil {
				return nil, err
			}
			r := row{Case: "rows of " + w.name, Variant: by, Ops: int64(b.checked), Counts: map[string]float64{}}
			for what, n := range after {
				if n -= before[what]; n != 0 {
					r.Counts[what] = float64(n)
				}
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (b *bench) repeat(ctx context.Context, t *target, samples sampleRows, w workload, by string) error {
	if by != "server" {
		_, err := pgbench{
			cluster: t.testbed.cluster, database: t.testbed.database, script: samples.script(w.name, floorOwn, by),
			prefix: t.prefix, clients: 1, times: b.checked,
		}.run(ctx)
		return err
	}
	for range b.checked {
		if err := t.perform(ctx, t.testbed.client, 0, w.name); err != nil {
			return err
		}
	}
	return nil
}

// rowsWritten returns how many rows were inserted, updated and deleted in each table so far. It restarts the server.
func (b *bench) rowsWritten(ctx context.Context, s *testbed, conn *pgx.Conn) (map[string]int64, error) {
	if err := s.server.stop(); err != nil {
		return nil, err
	}
	if err := s.cluster.awaitDisconnect(ctx, s.database); err != nil {
		return nil, err
	}
	written, err := tuples(ctx, conn)
	if err != nil {
		return nil, err
	}
	s.server, s.client, err = b.startServer(ctx, s.database, "api")
	return written, err
}

func tuples(ctx context.Context, conn *pgx.Conn) (map[string]int64, error) {
	rows, err := conn.Query(ctx, `
		SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables
		WHERE schemaname = 'stepwell' AND relname NOT IN ('processes', 'river_client', 'river_leader', 'river_queue')`)
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	written := map[string]int64{}
	var table string
	var inserted, updated, deleted int64
	_, err = pgx.ForEachRow(rows, []any{&table, &inserted, &updated, &deleted}, func() error {
		written[table+" inserted"], written[table+" updated"], written[table+" deleted"] = inserted, updated, deleted
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	return written, nil
}
