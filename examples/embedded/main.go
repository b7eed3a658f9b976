// Command embedded runs an order workflow in one process with its server, on the Postgres at DATABASE_URL: nothing else
// is started, and nothing listens. Kill it in the middle, and start it again: the order goes on.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/stepwell-dev/stepwell/embedded"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// Order ships what was paid.
var Order = stepwell.NewWorkflow[string, string]("order")

func order(w *stepwell.Context, id string) (string, error) {
	payment, err := stepwell.Do(w, "charge", func(context.Context) (string, error) { return "paid-" + id, nil })
	if err != nil {
		return "", err
	}
	if err := w.Sleep(3 * time.Second); err != nil { // kill it here
		return "", err
	}
	return stepwell.Do(w, "ship", func(context.Context) (string, error) { return "shipped, " + payment, nil })
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	outcome, err := placeOrder(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome)
}

// placeOrder places order 7, or finds it, and waits until it is shipped.
func placeOrder(ctx context.Context, url string) (string, error) {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders"})
	app.Register(Order.Bind(order))
	server, err := embedded.Start(ctx, embedded.Config{DatabaseURL: url, Logger: slog.Default()}, app)
	if err != nil {
		return "", err
	}
	defer server.Close()
	client, err := stepwell.NewClient(stepwell.ClientConfig{URL: embedded.URL, HTTP: server.Client()})
	if err != nil {
		return "", err
	}
	run, err := Order.Start(ctx, client, "7", stepwell.Once("order-7")) // the same run, however often it is started
	if err != nil {
		return "", err
	}
	return run.Wait(ctx)
}
