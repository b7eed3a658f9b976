// Command sdk-go runs an order workflow on Stepwell with the Go SDK. It is the same order as in ../function-go, which
// shows what the SDK does for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type (
	// Purchase is the input of an order.
	Purchase struct {
		ID      string  `json:"id"`
		Item    string  `json:"item"`
		Amount  float64 `json:"amount"`
		Seconds float64 `json:"seconds,omitempty"` // that the warehouse takes
	}
	// Receipt is its output.
	Receipt struct {
		Status  string   `json:"status"`
		Reason  string   `json:"reason,omitempty"`
		Payment *Payment `json:"payment,omitempty"`
		Parcel  string   `json:"parcel,omitempty"`
	}
	// Payment is what has been charged, under which key.
	Payment struct {
		Charged float64 `json:"charged"`
		Key     string  `json:"key"`
	}
	// Reservation is what the warehouse keeps for the order.
	Reservation struct {
		Reserved string `json:"reserved"`
	}
	// Decision answers whether an order is approved.
	Decision struct {
		Approved bool `json:"approved"`
	}
)

var (
	Order   = stepwell.NewWorkflow[Purchase, Receipt]("order")
	Charge  = stepwell.NewStep[Purchase, Payment]("charge", stepwell.Backoff(200*time.Millisecond, time.Minute))
	Reserve = stepwell.NewStep[Purchase, Reservation]("reserve", stepwell.AttemptTimeout(30*time.Second))
	Refund  = stepwell.NewStep[Payment, stepwell.None]("refund")
	Ship    = stepwell.NewStep[string, string]("ship")

	Approval = stepwell.NewHook[Decision]("approval")
)

func order(w *stepwell.Context, p Purchase) (Receipt, error) {
	charge, reserve := Charge.Go(w, p), Reserve.Go(w, p) // both run now
	paid, err := charge.Await(w)
	if err != nil {
		return Receipt{}, err
	}
	if reason, err := approve(w, p, reserve); err != nil {
		return Receipt{}, err
	} else if reason != "" {
		_, err := Refund.Run(w, paid)
		return Receipt{Status: "rejected", Reason: reason}, err
	}
	parcel, err := Ship.Run(w, p.Item)
	return Receipt{Status: "shipped", Payment: &paid, Parcel: parcel}, err
}

// approve waits for the goods and the approval of an order. It returns why the order is rejected; empty if it is not.
func approve(w *stepwell.Context, p Purchase, reserve *stepwell.Future[Reservation]) (reason string, err error) {
	if _, err := reserve.Await(w); err != nil {
		failed := (*stepwell.StepError)(nil)
		if !errors.As(err, &failed) {
			return "", err
		}
		return failed.ID + ": " + failed.Message, nil
	}
	if err := w.Sleep(time.Second); err != nil { // may be days as well
		return "", err
	}
	decision, err := Approval.Open(w, stepwell.Token("approve-"+p.ID)).Receive(w)
	if err != nil || decision.Approved {
		return "", err
	}
	return "it was not approved", nil
}

// The steps. They are ordinary functions, and may do anything.

func chargeCard(ctx context.Context, p Purchase) (Payment, error) {
	if stepwell.Info(ctx).Attempt == 1 {
		return Payment{}, errors.New("the bank is busy") // it is tried again
	}
	return Payment{p.Amount, stepwell.IdempotencyKey(ctx)}, nil
}

func reserveItem(ctx context.Context, p Purchase) (Reservation, error) {
	if p.Item == "unicorn" {
		return Reservation{}, stepwell.Permanent(errors.New("there are no unicorns")) // it is not tried again
	}
	select {
	case <-time.After(time.Duration(p.Seconds * float64(time.Second))): // the work itself
		return Reservation{p.Item}, nil
	case <-ctx.Done():
		return Reservation{}, context.Cause(ctx)
	}
}

func refundCard(context.Context, Payment) (stepwell.None, error) { return stepwell.None{}, nil }

func shipItem(_ context.Context, item string) (string, error) {
	return "a parcel with one " + item, nil
}

func main() {
	config := stepwell.AppConfig{Name: "orders", SigningKeys: os.Getenv("STEPWELL_SIGNING_KEYS")}
	if config.SigningKeys == "" {
		config.Unsigned = "an example on this machine only"
	}
	config.InterceptSteps = append(config.InterceptSteps,
		func(ctx context.Context, s stepwell.StepInfo, next func(context.Context) error) error {
			fmt.Println("step", s.Name, "attempt", s.Attempt)
			return next(ctx)
		})
	app := stepwell.NewApp(config)
	app.Register(
		Order.Bind(order), Charge.Bind(chargeCard), Reserve.Bind(reserveItem), Refund.Bind(refundCard), Ship.Bind(shipItem),
	)
	handler, err := app.Handler()
	if err != nil {
		log.Fatal(err)
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", l.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(l))
}
