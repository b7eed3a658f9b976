package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// driver has runs executed in one of several ways.
type driver struct {
	name string
	// run starts a run of a workflow, and returns its time of completion.
	run func(ctx context.Context, s *testbed, workflow string) (done time.Time, err error)
}

// drivers are the two protocols: wire, the Workflow SDK's, in which the function continues the run with its own
// requests, and contract, the function contract, in which each call of the function returns commands.
var drivers = []driver{{"wire", runByWire}, {"contract", runByContract}}

// flowDriver starts runs of a flow, which the server continues by itself. It has the case that is not the function's.
var flowDriver = driver{"flow", runByFlow}

const (
	openCase   = "seq-3"  // of all drivers, and of the open loops
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

// goDriver starts runs of the Go SDK's app, each of whose steps is on disk before the next one begins. It has the case
// that is not the function's.
var goDriver = driver{byGoSDK, func(ctx context.Context, s *testbed, _ string) (time.Time, error) {
	return s.execute(ctx, goDeployment, eachStep.Name(), openCase)
}}

const byGoSDK = "Go SDK"

// driversOf returns the drivers that have a case.
func driversOf(workflow string) []driver {
	if workflow != openCase {
		return drivers
	}
	return append(slices.Clone(drivers), flowDriver, goDriver)
}

// newRunID returns an ID whose first 20 characters are unique, because the IDs of steps and targets are derived from
// them.
func newRunID() string { return "wrun_" + ulid.MustNew(ulid.Now(), rand.Reader).String() }

// runByWire starts a run like the SDK. The run is done when the function has the answer to its run_completed.
func runByWire(ctx context.Context, s *testbed, workflow string) (time.Time, error) {
	run := newRunID()
	if err := s.client.start(ctx, workflow, run); err != nil {
		return time.Time{}, err
	}
	defer s.completions.forget(run)
	select {
	case done := <-s.completions.of(run):
		return done, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	case <-time.After(runTimeout):
		return time.Time{}, errNotCompleted
	}
}

// runByContract starts a run with the /v1 API. The run is done when the request that waits for it is answered.
func runByContract(ctx context.Context, s *testbed, workflow string) (time.Time, error) {
	return s.execute(ctx, contractDeployment, workflow, strings.TrimPrefix(workflow, workflowPrefix))
}

// runByFlow starts a run of the flow with the same shape with the /v1 API.
func runByFlow(ctx context.Context, s *testbed, workflow string) (time.Time, error) {
	name := strings.TrimPrefix(workflow, workflowPrefix)
	return s.execute(ctx, flowPrefix+name+"@1", flowPrefix+name, name)
}

// execute starts a run of a shape, sends it a message if the shape wants one, and waits until it has completed.
func (s *testbed) execute(ctx context.Context, deployment, workflow, shape string) (time.Time, error) {
	if shape != signalShape {
		err := s.client.executeRunOn(ctx, deployment, workflow, shape)
		return time.Now(), err
	}
	run, err := s.client.startSignalled(ctx, deployment, workflow, shape)
	if err == nil {
		err = s.client.awaitRun(ctx, run)
	}
	return time.Now(), err
}

// mostSteps limits the number of concurrent steps. With the wire protocol, a run of n parallel steps takes about n²
// messages, so 200 runs of 50 steps would take minutes for one round.
const mostSteps = 2_000

// percents are how much of what fits is asked for in open loops.
var percents = []int{25, 50, 80}

// measureEngine measures whole runs: in a closed loop with a fixed number in flight, and in an open loop at parts of
// the rate that the closed loop had with the most in flight.
func measureEngine(ctx context.Context, b *bench) ([]row, error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	rows, err := b.engineRows(ctx, s)
	return rows, errors.Join(err, s.clear())
}

// engineRows measures the closed loops, and then the open ones, whose rates follow from those.
func (b *bench) engineRows(ctx context.Context, s *testbed) ([]row, error) {
	rows, err := b.closedLoops(ctx, s)
	if err != nil {
		return nil, err
	}
	fit := map[string]float64{} // runs of openCase per second with the most in flight, by driver
	for _, r := range rows {
		if r.Case == openCase {
			fit[r.Variant] = r.perSecond()
		}
	}
	for _, percent := range percents {
		for _, d := range driversOf(openCase) {
			if !b.wants(openLoopName(d, percent)) {
				continue
			}
			rate := fit[d.name] * float64(percent) / 100
			r, err := b.engineRow(ctx, s, d, row{Case: openCase, Variant: d.name, Size: percent, Rate: rate})
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// closedLoops measures the closed loops, of each driver with more and more in flight.
func (b *bench) closedLoops(ctx context.Context, s *testbed) (rows []row, err error) {
	most := b.inFlight[len(b.inFlight)-1]
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
				reference := workflow == openCase && n == most && b.wantsOpenLoop(d)
				if !reference && !b.wants(fmt.Sprintf("%s %s %d", d.name, workflow, n)) {
					continue
				}
				r, err := b.engineRow(ctx, s, d, row{Case: workflow, Variant: d.name, Clients: n})
				if err != nil {
					return nil, err
				}
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

// openLoopName names the row of an open loop, for the option -rows.
func openLoopName(d driver, percent int) string {
	return fmt.Sprintf("%s %s %d%%", d.name, openCase, percent)
}

// wantsOpenLoop reports whether an open loop of the driver is to be measured.
func (b *bench) wantsOpenLoop(d driver) bool {
	return slices.ContainsFunc(percents, func(percent int) bool { return b.wants(openLoopName(d, percent)) })
}

// engineRow measures one kind of run, after a warm-up.
func (b *bench) engineRow(ctx context.Context, s *testbed, d driver, r row) (row, error) {
	workflow := workflowPrefix + r.Case
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) { return d.run(ctx, s, workflow) }
	closedLoop(ctx, max(1, r.Clients), b.warm, once)
	r, err := s.measure(ctx, r, func() (*sample, error) {
		if r.Rate > 0 {
			return openLoop(ctx, r.Rate, b.open, b.grace, once), nil
		}
		return closedLoop(ctx, r.Clients, b.engine, once), nil
	})
	if err != nil {
		return r, fmt.Errorf("%s %s, %d in flight, %g a second: %w", d.name, r.Case, r.Clients, r.Rate, err)
	}
	say("engine %s %s, %d in flight, %.0f a second: %.0f/s, p50 %.1f ms", d.name, r.Case, r.Clients, r.Rate, r.perSecond(),
		r.Latency.P50)
	return r, s.awaitEmptyQueue(ctx)
}
