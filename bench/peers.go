package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The variants of the part peers besides those of the Go SDK.
const (
	byEmbedded     = "SDK, embedded"
	byContractOnly = "contract"
	byFlowOnly     = "flow"
	onDBOS         = "DBOS"
	onRestate      = "Restate"
	onTemporal     = "Temporal"

	oneStep   = "1 step"
	tenSteps  = "10 steps"
	signalNap = "signal and sleep"

	notHad = "not had" // the case of a peer that could not be measured
)

// candidate is what the part peers compares: Stepwell in one of its ways, or a peer.
type candidate struct {
	name  string
	build func(ctx context.Context, b *bench, dir string) error // of a peer: builds its programs into a folder
	start func(ctx context.Context, b *bench, of *contender) error
}

func (c candidate) isPeer() bool { return c.build != nil }

// candidates are all in the order of the report.
var candidates = []candidate{
	{bySDK, nil, ofStepwell("each result is on disk before the next step begins", "",
		func(ctx context.Context, s *testbed, shape string) (time.Time, error) {
			return s.execute(ctx, goDeployment, eachStep.Name(), shape)
		})},
	{bySDKBatch, nil, ofStepwell("results are on disk with the answer to the call", "",
		func(ctx context.Context, s *testbed, shape string) (time.Time, error) {
			return s.execute(ctx, goDeployment, batches.Name(), shape)
		})},
	{byEmbedded, nil, startEmbedded},
	{byContractOnly, nil, ofStepwell("remote steps: a call each", "",
		func(ctx context.Context, s *testbed, shape string) (time.Time, error) {
			return runByContract(ctx, s, workflowPrefix+shape)
		})},
	{byFlowOnly, nil, ofStepwell("remote steps: a call each", signalNap, runByFlow)},
	{onDBOS, programs("./dbos"), startDBOS},
	{onRestate, programs("./restate"), startRestate},
	{onTemporal, programs("./temporal", "go.temporal.io/server/cmd/server", "go.temporal.io/server/cmd/tools/sql"),
		startTemporal},
	{onWorldPostgres, buildWorldApp, startWorldPostgres},
}

// leftOut are libraries that somebody may look for in the report, and why they are not measured.
var leftOut = []row{
	{Case: notHad, Variant: "River", About: "a job keeps which of its steps was the last one, not their results"},
	{Case: notHad, Variant: "go-workflows", About: "its newest release, 1.2.0, has no backend for Postgres"},
}

// contender is a candidate that is being measured.
type contender struct {
	meter

	bin       string            // folder of the peer's programs
	about     string            // version and settings
	lacks     string            // the case that it does not have
	workflows map[string]string // the app's names of shapes, if it has others
	load      func(ctx context.Context, shape string, inFlight int, window time.Duration) (*sample, error)
	stops     []func() error // what is to be done at the end, last first
}

func (of *contender) stop() (err error) {
	for _, stop := range slices.Backward(of.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// newDatabase creates a database for the time of the measurement, and returns its name.
func (of *contender) newDatabase(ctx context.Context) (string, error) {
	database, err := of.cluster.newDatabase(ctx)
	if err != nil {
		return "", err
	}
	of.stops = append(of.stops, func() error { return of.cluster.drop(database) })
	return database, nil
}

// peerLoad is a load for all candidates: runs of a shape, in a closed loop.
type peerLoad struct {
	name, shape string
	inFlight    int
}

var peerLoads = []peerLoad{
	{threeSteps, "seq-3", 1}, {threeSteps, "seq-3", 64}, {threeSteps, "seq-3", 200},
	{oneStep, "seq-1", 1}, {tenSteps, "seq-10", 1}, {fiftyAtOnce, "wide-50", 1}, {signalNap, signalShape, 1},
}

// measurePeers measures all candidates in turns. While one is measured, no other is up. A peer that cannot be built or
// started is a row with the reason.
func measurePeers(ctx context.Context, b *bench) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "stepwell-bench-peers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the peers' apps: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	missing := map[string]error{}
	for _, c := range candidates {
		if c.isPeer() {
			say("building %s", c.name)
			missing[c.name] = c.build(ctx, b, filepath.Join(dir, c.name))
		}
	}
	for round := range b.rounds {
		for _, c := range candidates {
			if missing[c.name] != nil {
				continue
			}
			of := &contender{meter: meter{cluster: b.cluster}, bin: filepath.Join(dir, c.name)}
			if err := c.start(ctx, b, of); err != nil {
				missing[c.name] = errors.Join(err, of.stop())
				if !c.isPeer() || ctx.Err() != nil {
					return nil, fmt.Errorf("%s: %w", c.name, missing[c.name])
				}
				continue
			}
			got, err := b.measureContender(ctx, c.name, of, round+1)
			if err := errors.Join(err, of.stop()); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rows = append(rows, got...)
		}
	}
	for _, c := range candidates {
		if err := missing[c.name]; err != nil {
			say("%s cannot be measured: %v", c.name, err)
			rows = append(rows, row{Case: notHad, Variant: c.name, About: oneLine(err.Error(), 300)})
		}
	}
	return append(rows, leftOut...), ctx.Err()
}

func (b *bench) measureContender(ctx context.Context, name string, of *contender, round int) (rows []row, err error) {
	for _, l := range peerLoads {
		if l.name == of.lacks {
			continue
		}
		if _, err := of.load(ctx, l.shape, l.inFlight, b.warm); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		if err := b.cluster.checkpoint(ctx); err != nil {
			return nil, err
		}
		r := row{Case: l.name, Variant: name, Clients: l.inFlight, Round: round, About: of.about}
		window := b.peer
		if l.name != threeSteps {
			window = b.peerOther
		}
		r, err := of.measure(ctx, r, func() (*sample, error) { return of.load(ctx, l.shape, l.inFlight, window) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		say("%s, %d in flight, %s: %.0f/s, p50 %.1f ms, %.2f ms of CPU", r.Case, r.Clients, name, r.perSecond(),
			r.Latency.P50, allCPU.of(r))
		rows = append(rows, r)
	}
	return rows, nil
}

// ofStepwell returns how to start Stepwell, and to have runs of a shape carried out.
func ofStepwell(
	about, lacks string, run func(ctx context.Context, s *testbed, shape string) (time.Time, error),
) func(context.Context, *bench, *contender) error {
	return func(ctx context.Context, b *bench, of *contender) error {
		s, err := b.newTestbed(ctx, "all")
		if err != nil {
			return err
		}
		of.meter, of.about, of.lacks = s.meter, "default settings; "+about, lacks
		of.stops = append(of.stops, s.clear)
		of.load = func(ctx context.Context, shape string, inFlight int, window time.Duration) (*sample, error) {
			got := closedLoop(ctx, inFlight, window, func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
				return run(ctx, s, shape)
			})
			return got, s.awaitEmptyQueue(ctx)
		}
		return nil
	}
}
