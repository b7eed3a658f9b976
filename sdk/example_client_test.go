package stepwell_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// Those who start runs use the same definition as those who execute them.
func ExampleClient() {
	ctx := context.Background()
	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv()) // STEPWELL_URL, STEPWELL_API_KEY
	if err != nil {
		log.Fatal(err)
	}
	run, err := Order.Start(ctx, client, Purchase{ID: "7", Amount: 2500},
		stepwell.RunKey("order-7"), stepwell.Join(), // the run of this order that is in progress, or a new one
		stepwell.Attribute("customer", "ann"), stepwell.Timeout(72*time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := run.Wait(ctx)
	if failed := (*stepwell.RunFailedError)(nil); errors.As(err, &failed) {
		log.Fatal("the order failed: ", failed)
	}
	fmt.Println(receipt.Payment, err)

	for r, err := range client.Runs(ctx, stepwell.RunFilter{Workflow: Order.Name(), Status: stepwell.StatusFailed}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.ID)
	}
}

// Many runs are started at the same time, and looked at as they end.
func ExampleEnds() {
	ctx := context.Background()
	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv())
	if err != nil {
		log.Fatal(err)
	}
	purchases := []Purchase{{ID: "7", Amount: 2500}, {ID: "8", Amount: 100}}
	runs, err := Order.StartAll(ctx, client, purchases, func(i int) []stepwell.StartOption {
		return []stepwell.StartOption{stepwell.Once("order-" + purchases[i].ID)}
	})
	if err != nil {
		log.Fatal(err)
	}
	for end, err := range stepwell.Ends(ctx, runs) {
		fmt.Println(purchases[end.Index].ID, end.Output.Status, err)
	}
}

// What has failed goes on when its code is mended.
func ExampleClient_ForkAll() {
	ctx := context.Background()
	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv())
	if err != nil {
		log.Fatal(err)
	}
	// A new run keeps what order 7 has done, and goes on from the step that failed, with the newest code.
	fork, err := Order.Handle(client, "wrun_01JD5A8R8D0000000000000000").Fork(ctx, stepwell.ForkOptions{Deployment: "latest"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fork.ID())

	// So do all that failed in the same way, each once for this key. With DryRun, it only says which they are.
	declined := stepwell.RunFilter{Workflow: Order.Name(), ErrorCode: "card_declined"}
	all, err := client.ForkAll(ctx, declined, stepwell.ForkAllOptions{Deployment: "latest", IdempotencyKey: "cards-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all.Done, all.Refused)

	// All runs of ann that have not ended are cancelled.
	ofAnn := stepwell.RunFilter{Attributes: map[string]string{"customer": "ann"}}
	all, err = client.CancelAll(ctx, ofAnn, stepwell.CancelAllOptions{Reason: "the account is closed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all.Done)
}

// The handler serves on any HTTP host. It accepts only calls that the server has signed.
func ExampleApp_Handler() {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders"}) // STEPWELL_SIGNING_KEYS
	app.Register(Order.Bind(order), Charge.Bind(charge), Ship.Bind(ship))
	handler, err := app.Handler()
	if err != nil {
		log.Fatal(err) // names everything that cannot work
	}
	http.Handle("/stepwell", handler)
	log.Fatal(http.ListenAndServe(":3000", nil))
}

// Several starts can become one run, and limits bound how many runs there are.
func ExampleStartBatched() {
	ctx := context.Background()
	client, err := stepwell.NewClient(stepwell.ClientConfigFromEnv())
	if err != nil {
		log.Fatal(err)
	}
	// At most as many runs of customer ann as the limit allows, before others that came up to five minutes earlier.
	run, err := Order.Start(ctx, client, Purchase{ID: "7", Amount: 2500},
		stepwell.Limits(stepwell.LimitUse{Limit: "orders", Key: "ann"}), stepwell.Priority(5*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.ID())

	// One run with the last purchase, when no other one has come for ten seconds.
	run, err = Order.Start(ctx, client, Purchase{ID: "7", Amount: 2600},
		stepwell.Debounced(stepwell.DebounceRule{Key: "order-7", Quiet: 10 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.ID())

	// One run with a list of up to a hundred purchases.
	payout, err := stepwell.StartBatched(ctx, client, Payout, Purchase{ID: "7", Amount: 2500},
		stepwell.BatchRule{Size: 100, Wait: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(payout.Wait(ctx))
}

// Payout pays purchases out together.
var Payout = stepwell.NewWorkflow[[]Purchase, int]("payout")
