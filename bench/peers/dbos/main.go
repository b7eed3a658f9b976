// Command dbos is the app of the peer DBOS, a library that keeps its state in the app's Postgres.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/stepwell-dev/stepwell/bench/peers/load"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	app, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", DatabaseURL: os.Getenv("DATABASE_URL"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(app, workflow)
	if err := dbos.Launch(app); err != nil {
		return err
	}
	defer dbos.Shutdown(app, 10*time.Second)
	return load.Serve(func(_ context.Context, in load.Input) (int, error) {
		run, err := dbos.RunWorkflow(app, workflow, in)
		if err == nil && in.Signal {
			err = dbos.Send(app, run.GetWorkflowID(), 1, "")
		}
		if err != nil {
			return 0, err
		}
		return run.GetResult()
	})
}

func step(context.Context) (int, error) { return 1, nil }

func workflow(ctx dbos.Context, in load.Input) (sum int, err error) {
	if in.Signal {
		if _, err := dbos.Recv[int](ctx, "", time.Minute); err != nil {
			return 0, err
		}
		_, err := dbos.Sleep(ctx, load.Nap)
		return 0, err
	}
	if in.AtOnce {
		return atOnce(ctx, in.Steps)
	}
	for range in.Steps {
		n, err := dbos.RunAsStep(ctx, step)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func atOnce(ctx dbos.Context, steps int) (sum int, err error) {
	all := make([]<-chan dbos.StepOutcome[int], steps)
	for i := range all {
		if all[i], err = dbos.Go(ctx, step); err != nil {
			return 0, err
		}
	}
	for _, one := range all {
		outcome := <-one
		if outcome.Err != nil {
			return 0, outcome.Err
		}
		sum += outcome.Result
	}
	return sum, nil
}
