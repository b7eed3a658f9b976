package stepwell_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// An app is a program that serves until it gets a signal. SIGTERM lets it finish its calls.
func ExampleApp_Serve() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders", PublicURL: "https://orders.example.com/"})
	app.Register(Order.Bind(order), Charge.Bind(charge), Ship.Bind(ship))
	if err := app.Serve(ctx, ":3000"); err != nil {
		log.Fatal(err)
	}
}

// work makes the calls of the app's workflows and steps until ctx ends.
func work(ctx context.Context) error {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders", Slots: 20})
	app.Register(Order.Bind(order), Charge.Bind(charge), Ship.Bind(ship))
	return app.Work(ctx) // with STEPWELL_URL and STEPWELL_API_KEY
}

// A worker asks for its calls: nothing has to reach it.
func ExampleApp_Work() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil {
		log.Fatal(err)
	}
}

// Before a deployment, replay the runs that are in progress.
func ExampleApp_Replay() {
	ctx := context.Background()
	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv())
	if err != nil {
		log.Fatal(err)
	}
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders"})
	app.Register(Order.Bind(order))

	running := stepwell.RunFilter{Workflow: Order.Name(), Status: stepwell.StatusRunning}
	for run, err := range client.Runs(ctx, running) {
		if err != nil {
			log.Fatal(err)
		}
		history, err := Order.Handle(client, run.ID).Log(ctx)
		if err == nil {
			err = app.Replay(ctx, history)
		}
		if err != nil {
			log.Fatal(err) // the run no longer fits: its error names both lines of code
		}
	}
}
