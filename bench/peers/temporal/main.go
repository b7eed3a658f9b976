// Command temporal is the app of the peer Temporal: a worker that executes steps as local activities.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stepwell-dev/stepwell/bench/peers/load"
)

const queue = "bench"

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	quiet := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})
	options := client.Options{
		HostPort: os.Getenv("TEMPORAL_ADDRESS"), Namespace: "bench",
		Logger: log.NewStructuredLogger(slog.New(quiet)),
	}
	if err := register(ctx, options); err != nil {
		return err
	}
	c, err := client.Dial(options)
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(run)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	runOnce := func(ctx context.Context, in load.Input) (sum int, err error) {
		started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, run, in)
		if err == nil && in.Signal {
			err = c.SignalWorkflow(ctx, started.GetID(), started.GetRunID(), "signal", 1)
		}
		if err == nil {
			err = started.Get(ctx, &sum)
		}
		return sum, err
	}
	err = untilOK(func() error { // the server reads namespaces every few seconds
		_, err := runOnce(ctx, load.Input{Steps: 1})
		return err
	})
	if err != nil {
		return err
	}
	return load.Serve(runOnce)
}

// untilOK repeats an operation for a while, until it succeeds.
func untilOK(do func() error) (err error) {
	for began := time.Now(); time.Since(began) < 45*time.Second; time.Sleep(100 * time.Millisecond) {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

// register registers the namespace when the server is ready.
func register(ctx context.Context, options client.Options) error {
	n, err := client.NewNamespaceClient(options)
	if err != nil {
		return err
	}
	defer n.Close()
	return untilOK(func() error {
		return n.Register(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: options.Namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
	})
}

func step(context.Context) (int, error) { return 1, nil }

// run is the workflow.
func run(ctx workflow.Context, in load.Input) (sum int, err error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	if in.Signal {
		workflow.GetSignalChannel(ctx, "signal").Receive(ctx, nil)
		return 0, workflow.Sleep(ctx, load.Nap)
	}
	var all []workflow.Future
	for range in.Steps {
		f := workflow.ExecuteLocalActivity(ctx, step)
		if all = append(all, f); !in.AtOnce {
			if err := f.Get(ctx, nil); err != nil {
				return 0, err
			}
		}
	}
	for _, f := range all {
		var n int
		if err := f.Get(ctx, &n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
