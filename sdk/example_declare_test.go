package stepwell_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// A command of the app that each release executes once. With -dry-run it only says what would change.
func ExampleApp_Reconcile() {
	dryRun := flag.Bool("dry-run", false, "only say what would change")
	flag.Parse()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders"})
	app.Register(Order.Bind(order))
	app.Declare(
		stepwell.Limit{Name: "orders.bank", PerKey: 1, Rate: 100, Per: time.Minute},
		stepwell.Schedule{
			Name: "orders.restock", Cron: "30 2 * * MON-FRI", TimeZone: "Europe/Berlin",
			Start: Order.Planned(Purchase{ID: "stock", Amount: 1}),
		},
		stepwell.Trigger{
			Name: "orders.paid", Signal: OrderPaid.Name(),
			Start: Order.PlannedFrom(map[string]string{"id": "${data.order}"}, stepwell.RunKey("${data.order}")),
		},
	)

	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv())
	if err != nil {
		log.Fatal(err)
	}
	do := app.Reconcile
	if *dryRun {
		do = app.Changes
	}
	changes, err := do(context.Background(), client)
	for _, c := range changes {
		fmt.Println(c) // create schedules orders.restock
	}
	if err != nil {
		log.Fatal(err)
	}
}
