package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

const (
	goDeployment     = "bench-go"
	goPath           = "/go"
	coldGoDeployment = "bench-go-cold"
	coldGoPath       = "/go-cold"
)

var (
	// eachStep and batches have the steps of the shape that is their input.
	eachStep = stepwell.NewWorkflow[string, int]("each-step", stepwell.WithInbox(signals))
	batches  = stepwell.NewWorkflow[string, int]("batches", stepwell.WithInbox(signals), stepwell.BatchResults())
	// longLog makes a log of about so many events, and then receives payloads until one is 0.
	longLog = stepwell.NewWorkflow[int, int]("long-log", stepwell.BatchResults())

	work    = stepwell.NewStep[int, int]("work")
	signals = stepwell.NewInbox[int](signalInbox)
	probes  = stepwell.NewHook[int64]("probes")
)

// goFunction is the function with the SDK.
type goFunction struct {
	*tracker

	probe atomic.Int64 // the last payload of a long log: when it was sent
}

// handler returns the handler of an app that keeps runs in memory, or none.
func (f *goFunction) handler(cacheBytes int) (http.Handler, error) {
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "bench", Server: os.Getenv(serverVariable), Unsigned: "the bench is alone on this machine", CacheBytes: cacheBytes,
		Logger:               slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		InterceptInvocations: []func(context.Context, stepwell.InvocationInfo, func(context.Context) error) error{f.invocation},
		InterceptSteps:       []func(context.Context, stepwell.StepInfo, func(context.Context) error) error{f.measured},
	})
	app.Register(workStep(), eachStep.Bind(shaped), batches.Bind(shaped), longLog.Bind(f.receive))
	return app.Handler()
}

// workStep is the step of all workflows.
func workStep() stepwell.Definition {
	return work.Bind(func(context.Context, int) (int, error) { return 3, nil })
}

// invocation counts calls, and reports when the call with a payload has been carried out.
func (f *goFunction) invocation(ctx context.Context, t stepwell.InvocationInfo, next func(context.Context) error) error {
	if t.Run.Workflow != longLog.Name() {
		f.called(t.Run.ID)
		return next(ctx)
	}
	err := next(ctx)
	if sent := f.probe.Swap(0); sent > 0 && err == nil {
		err = f.resumed(sent, time.Now())
	}
	return err
}

func (f *goFunction) measured(ctx context.Context, s stepwell.StepInfo, next func(context.Context) error) error {
	began := time.Now()
	err := next(ctx)
	if s.Run.Workflow != longLog.Name() {
		f.tracker.step(s.Run.ID, began, time.Now())
	}
	return err
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

func (f *goFunction) receive(w *stepwell.Context, events int) (int, error) {
	for range events / 2 { // each makes two
		if _, err := stepwell.Do(w, "value", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return 0, err
		}
	}
	h := probes.Open(w, stepwell.Token(tokenOf(w.Info().ID)))
	for n := 0; ; n++ {
		sent, err := h.Receive(w)
		if err != nil || sent == 0 {
			return n, err
		}
		f.probe.Store(sent)
	}
}
