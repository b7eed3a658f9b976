package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

const (
	goDeployment = "bench-go"
	goPath       = "/go"
)

var (
	// eachStep and batches have the steps of the shape that is their input.
	eachStep = stepwell.NewWorkflow[string, int]("each-step", stepwell.WithInbox(signals))
	batches  = stepwell.NewWorkflow[string, int]("batches", stepwell.WithInbox(signals), stepwell.BatchResults())

	work    = stepwell.NewStep[int, int]("work")
	signals = stepwell.NewInbox[int](signalInbox)
)

// goHandler returns the handler of an app of the Go SDK.
func goHandler() (http.Handler, error) {
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "bench", Server: os.Getenv(serverVariable), Unsigned: "the bench is alone on this machine",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	app.Register(workStep(), eachStep.Bind(shaped), batches.Bind(shaped))
	return app.Handler()
}

// workStep is the step of all workflows.
func workStep() stepwell.Definition {
	return work.Bind(func(context.Context, int) (int, error) { return 3, nil })
}

// shaped is a workflow of the shape with the name.
func shaped(w *stepwell.Context, name string) (sum int, err error) {
	of, err := shapeOf(name)
	if err != nil {
		return 0, err
	}
	if of.signal {
		if _, err := signals.Receive(w); err != nil {
			return 0, err
		}
		return 0, w.Sleep(nap)
	}
	if of.wide {
		return atOnce(w, of.steps)
	}
	for i := range of.steps {
		n, err := work.Run(w, i)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func atOnce(w *stepwell.Context, steps int) (int, error) {
	all := make([]*stepwell.Future[int], steps)
	for i := range all {
		all[i] = work.Go(w, i)
	}
	done, err := stepwell.All(w, all...)
	return len(done), err
}
