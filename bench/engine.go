package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// driver starts runs by one of the two protocols, and waits for their end.
type driver struct {
	name string
	// run starts a run, and returns its time of completion and the function's report.
	run func(ctx context.Context, s *testbed, workflow string) (done time.Time, r report, err error)
}

// drivers are the two protocols: wire, the Workflow SDK's, in which the function continues the run with its own
// requests, and contract, the function contract, in which each call of the function returns commands.
var drivers = []driver{{"wire", runByWire}, {"contract", runByContract}}

// flowDriver starts runs of a flow, which the server continues by itself. It has the case that is not the function's.
var flowDriver = driver{"flow", runByFlow}

const (
	flowCase   = "seq-3"
	flowPrefix = "bench-" // of the names of flows, before the name of the shape
)

// flowDocument returns the flow of a shape, whose steps the deployment of the contract executes.
func flowDocument(name string, of shape) string {
	var doc strings.Builder
	fmt.Fprintf(&doc, "flow: %s%s\ndeployment: %s\noutput: 3\nsteps:\n", flowPrefix, name, contractDeployment)
	for n := range of.steps {
		needs := ""
		if n > 0 && !of.wide {
			needs = fmt.Sprintf("needs: s%d, ", n-1)
		}
		fmt.Fprintf(&doc, "  s%d: {%scall: work}\n", n, needs)
	}
	return doc.String()
}

// driversOf returns the drivers that have a case.
func driversOf(workflow string) []driver {
	if workflow != flowCase {
		return drivers
	}
	return append(slices.Clone(drivers), flowDriver)
}

// newRunID returns an ID whose first 20 characters are unique, because the IDs of steps and targets are derived from
// them.
func newRunID() string { return "wrun_" + ulid.MustNew(ulid.Now(), rand.Reader).String() }

// runByWire starts a run like the SDK. The run is done when the function has the answer to its run_completed.
func runByWire(ctx context.Context, s *testbed, workflow string) (time.Time, report, error) {
	run := newRunID()
	if err := s.client.start(ctx, workflow, run); err != nil {
		return time.Time{}, report{}, err
	}
	r, err := s.reports.await(ctx, run)
	return time.Unix(0, r.Done), r, err
}

// runByContract starts a run with the /v1 API. The run is done when the request that waits for it is answered.
func runByContract(ctx context.Context, s *testbed, workflow string) (time.Time, report, error) {
	return s.reported(ctx, contractDeployment, workflow, strings.TrimPrefix(workflow, workflowPrefix))
}

// runByFlow starts a run of the flow with the same shape with the /v1 API.
func runByFlow(ctx context.Context, s *testbed, workflow string) (time.Time, report, error) {
	name := strings.TrimPrefix(workflow, workflowPrefix)
	return s.reported(ctx, flowPrefix+name+"@1", flowPrefix+name, name)
}

// execute starts a run of a shape, sends it a message if the shape wants one, and waits until it has completed.
func (s *testbed) execute(ctx context.Context, deployment, workflow, shape string) (string, error) {
	if shape != signalShape {
		return s.client.executeRunOn(ctx, deployment, workflow, shape)
	}
	run, err := s.client.startSignalled(ctx, deployment, workflow, shape)
	if err != nil {
		return "", err
	}
	return run, s.client.awaitRun(ctx, run)
}

// reported executes a run, and waits for the function's report of it.
func (s *testbed) reported(ctx context.Context, deployment, workflow, shape string) (time.Time, report, error) {
	run, err := s.execute(ctx, deployment, workflow, shape)
	if err != nil {
		return time.Time{}, report{}, err
	}
	done := time.Now()
	r, err := s.reports.await(ctx, run)
	return done, r, err
}

// await waits for the report of a run.
func (r *reports) await(ctx context.Context, run string) (report, error) {
	defer r.forget(run)
	select {
	case got := <-r.of(run):
		return got, nil
	case <-ctx.Done():
		return report{}, ctx.Err()
	case <-time.After(runTimeout):
		return report{}, errNoReport
	}
}

// fieldMetrics are the usual metrics for workflow engines: TTFS, from the start to the first step; STSO, from the end
// of a step to the start of the next; and WO, the run's time without its steps.
type fieldMetrics struct {
	ttfs, stso, wo *latencies
	deliveries     atomic.Int64
}

func newFieldMetrics() *fieldMetrics {
	return &fieldMetrics{ttfs: newLatencies(), stso: newLatencies(), wo: newLatencies()}
}

func (m *fieldMetrics) add(began, done time.Time, r report) {
	m.deliveries.Add(int64(r.Deliveries))
	m.ttfs.record(time.Unix(0, r.First).Sub(began))
	for _, gap := range r.Gaps {
		m.stso.record(time.Duration(gap))
	}
	m.wo.record(done.Sub(began) - time.Duration(r.Steps))
}

func (m *fieldMetrics) into(r row, sequential bool) row {
	r.Other = map[string]quantiles{"TTFS": m.ttfs.quantiles(), "WO": m.wo.quantiles()}
	if sequential && m.stso.h.TotalCount() > 0 {
		r.Other["STSO"] = m.stso.quantiles()
	}
	r.Counts = map[string]float64{"deliveries": float64(m.deliveries.Load())}
	return r
}

// mostSteps limits the number of concurrent steps. With the wire protocol, a run of n parallel steps takes about n²
// messages, so 200 runs of 50 steps would take minutes for one round.
const mostSteps = 2_000

// measureEngine measures whole runs: in a closed loop with a fixed number in flight, and in an open loop at fixed
// rates.
func measureEngine(ctx context.Context, b *bench) ([]row, error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	rows, err := b.engineRows(ctx, s)
	return rows, errors.Join(err, s.clear())
}

func (b *bench) engineRows(ctx context.Context, s *testbed) ([]row, error) {
	var rows []row
	for _, workflow := range b.shapes {
		of, err := shapeOf(workflow)
		if err != nil {
			return nil, err
		}
		for _, n := range b.inFlight {
			if n*of.steps > mostSteps {
				continue
			}
			for _, d := range driversOf(workflow) {
				r, err := b.engineRow(ctx, s, d, row{Case: workflow, Variant: d.name, Clients: n})
				if err != nil {
					return nil, err
				}
				rows = append(rows, r)
			}
		}
	}
	for _, rate := range b.rates {
		for _, d := range drivers {
			r, err := b.engineRow(ctx, s, d, row{Case: "seq-3", Variant: d.name, Rate: rate})
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// engineRow measures one kind of run, after a warm-up.
func (b *bench) engineRow(ctx context.Context, s *testbed, d driver, r row) (row, error) {
	workflow := workflowPrefix + r.Case
	of, err := shapeOf(workflow)
	if err != nil {
		return r, err
	}
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	closedLoop(ctx, max(1, r.Clients), b.warm, func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		done, _, err := d.run(ctx, s, workflow)
		return done, err
	})
	metrics := newFieldMetrics()
	once := func(ctx context.Context, _ int, began time.Time) (time.Time, error) {
		done, report, err := d.run(ctx, s, workflow)
		if err == nil {
			metrics.add(began, done, report)
		}
		return done, err
	}
	r, err = s.measure(ctx, r, func() (*sample, error) {
		if r.Rate > 0 {
			return openLoop(ctx, r.Rate, b.open, b.grace, once), nil
		}
		return closedLoop(ctx, r.Clients, b.engine, once), nil
	})
	if err != nil {
		return r, fmt.Errorf("%s %s, %d in flight, %g a second: %w", d.name, r.Case, r.Clients, r.Rate, err)
	}
	say("engine %s %s, %d in flight, %g a second: %.0f/s, p50 %.1f ms", d.name, r.Case, r.Clients, r.Rate, r.perSecond(),
		r.Latency.P50)
	return metrics.into(r, !of.wide), s.awaitEmptyQueue(ctx)
}
