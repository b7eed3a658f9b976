package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

const (
	onStepwell      = "Stepwell"
	onWorldPostgres = "world-postgres"

	sdkDeployment = "bench-sdk"
)

// sdkLoad is a measurement by the app.
type sdkLoad struct {
	name, kind string // of measurement
	measurement
}

// sdkPlan is the plan for the part sdk.
type sdkPlan struct {
	warm  int // number of warm-up runs of three steps
	loads []sdkLoad
}

func sdkPlanFor(short bool) sdkPlan {
	idle := func(name, kind, workflow string, times int) sdkLoad {
		return sdkLoad{name, kind, measurement{Workflow: workflow, Times: times, InFlight: 1, PauseMs: 50}}
	}
	together := func(name, kind, workflow string, times, inFlight int) sdkLoad {
		return sdkLoad{name, kind, measurement{Workflow: workflow, Times: times, InFlight: inFlight}}
	}
	chunks := func(times, chunks int) sdkLoad {
		return sdkLoad{"chunk to reader", "stream", measurement{Times: times, InFlight: 1, PauseMs: 20, Chunks: chunks}}
	}
	if short {
		return sdkPlan{2, []sdkLoad{
			idle("1 step", "runs", "one", 3), idle("3 steps", "runs", "three", 3),
			idle("10 steps", "runs", "ten", 2), idle("50 at once", "runs", "wide", 1),
			together("3 steps", "runs", "three", 10, 10), idle("hook to code", "hook", "", 2),
			together("sleep, too late by", "sleep", "", 2, 2), chunks(1, 5),
		}}
	}
	return sdkPlan{100, []sdkLoad{
		idle("1 step", "runs", "one", 80), idle("3 steps", "runs", "three", 80), idle("10 steps", "runs", "ten", 30),
		idle("50 at once", "runs", "wide", 15), together("3 steps", "runs", "three", 600, 200),
		idle("hook to code", "hook", "", 50), together("sleep, too late by", "sleep", "", 30, 10), chunks(4, 50),
	}}
}

// backend is the app on one of the Worlds.
type backend struct {
	meter

	name     string
	client   *client // of the server
	app      *app
	messages string // the table of pending messages
}

// measureSDK measures one app of the Workflow SDK alternately on Stepwell and on the SDK's own World for Postgres.
func measureSDK(ctx context.Context, b *bench) (rows []row, err error) {
	dir := filepath.Join(b.root, appFolder)
	if err := buildApp(ctx, dir); err != nil {
		return nil, err
	}
	var backends []*backend
	defer func() {
		for _, of := range backends {
			err = errors.Join(err, of.stop())
		}
	}()
	type starter func(context.Context, *bench, string) (*backend, error)
	for _, start := range []starter{startOnStepwell, startOnWorldPostgres} {
		of, err := start(ctx, b, dir)
		if of != nil {
			backends = append(backends, of)
		}
		if err != nil {
			return nil, err
		}
		if err := of.warmUp(ctx, b.sdk.warm); err != nil {
			return nil, fmt.Errorf("%s: %w", of.name, err)
		}
	}
	for _, load := range b.sdk.loads {
		for round := range b.rounds {
			for _, of := range backends {
				r, err := of.measure(ctx, load, round+1)
				if err != nil {
					return nil, fmt.Errorf("%s on %s: %w", load.name, of.name, err)
				}
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

// startOnStepwell starts a server, and the app with Stepwell's World.
func startOnStepwell(ctx context.Context, b *bench, dir string) (*backend, error) {
	database, err := b.cluster.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	of := &backend{meter: meter{cluster: b.cluster, database: database}, name: onStepwell, messages: "messages"}
	if of.server, of.client, err = b.startServer(ctx, database, "all"); err != nil {
		return nil, err
	}
	of.app, err = startApp(ctx, dir, "app on Stepwell", "WORKFLOW_TARGET_WORLD=@stepwell/world",
		"STEPWELL_URL="+of.client.url, "STEPWELL_DEPLOYMENT_ID="+sdkDeployment, "STEPWELL_API_KEY="+apiKey)
	if err != nil {
		return of, err
	}
	of.function = of.app.Process
	return of, of.client.deploy(ctx, sdkDeployment, of.app.url)
}

// startOnWorldPostgres starts the app with world-postgres and its default settings.
func startOnWorldPostgres(ctx context.Context, b *bench, dir string) (*backend, error) {
	database, err := b.cluster.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	of := &backend{meter: meter{cluster: b.cluster, database: database}, name: onWorldPostgres,
		messages: "graphile_worker.jobs"}
	if of.app, err = launchOnWorldPostgres(ctx, dir, b.cluster.url(database)); err != nil {
		return nil, err
	}
	of.function = of.app.Process
	return of, nil
}

// launchOnWorldPostgres creates the tables of world-postgres in a database, and launches the app on it.
func launchOnWorldPostgres(ctx context.Context, dir, database string) (*app, error) {
	env := []string{"WORKFLOW_TARGET_WORLD=@workflow/world-postgres", "WORKFLOW_POSTGRES_URL=" + database}
	bootstrap := filepath.Join("node_modules", "@workflow", "world-postgres", "bin", "setup.js")
	setUp := exec.CommandContext(ctx, "node", bootstrap)
	setUp.Dir, setUp.Env = dir, appEnvironment(setUp.Environ(), env...)
	if out, err := setUp.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("set up the database of %s: %w\n%s", onWorldPostgres, err, out)
	}
	return startApp(ctx, dir, "app on world-postgres", env...)
}

// warmUp checks the results of all workflows, and lets Node compile the app's code before the measurements.
func (of *backend) warmUp(ctx context.Context, runs int) error {
	for workflow, steps := range map[string]int{"one": 1, "three": 3, "ten": 10, "wide": 50} {
		if err := of.app.check(ctx, workflow, steps); err != nil {
			return err
		}
	}
	_, err := of.app.measure(ctx, "runs", measurement{Workflow: "three", Times: runs, InFlight: 4})
	return err
}

// measure measures a load, after one unmeasured pass.
func (of *backend) measure(ctx context.Context, load sdkLoad, round int) (row, error) {
	r := row{Case: load.name, Variant: of.name, Clients: load.InFlight, Round: round}
	once := load.measurement
	once.Times = once.InFlight
	if _, err := of.app.measure(ctx, load.kind, once); err != nil {
		return r, err
	}
	if err := of.awaitIdle(ctx); err != nil {
		return r, err
	}
	r, err := of.meter.measure(ctx, r, func() (*sample, error) {
		got, err := of.app.measure(ctx, load.kind, load.measurement)
		return got.sample(load.Times), err
	})
	if err != nil {
		return r, err
	}
	say("%s, %d in flight, on %s: %.1f/s, p50 %.1f ms", r.Case, r.Clients, r.Variant, r.perSecond(), r.Latency.P50)
	return r, nil
}

// awaitIdle waits until no messages are pending and Postgres is idle.
func (of *backend) awaitIdle(ctx context.Context) error {
	if err := of.cluster.awaitEmpty(ctx, of.database, of.messages); err != nil {
		return err
	}
	return of.cluster.checkpoint(ctx)
}

// stop stops the server first, so that it can finish its deliveries.
func (of *backend) stop() error {
	var err error
	if of.server != nil {
		err = of.server.Terminate()
	}
	if of.app != nil {
		err = errors.Join(err, of.app.Terminate())
	}
	return err
}
