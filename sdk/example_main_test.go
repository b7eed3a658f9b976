package stepwell_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// An app is a program with the commands serve, schema, replay and version. SIGTERM lets it finish its calls.
func ExampleApp_Main() {
	os.Args = []string{"orders", "help"} // of this example

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders"})
	app.Register(Order.Bind(order), Charge.Bind(charge), Ship.Bind(ship))
	if err := app.Main(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Output:
	// orders needs one of these commands:
	//   replay     replay runs of a server with this code
	//   schema     print the workflows with the schemas of their inputs and outputs
	//   serve      serve the app
	//   version    print the build
}
