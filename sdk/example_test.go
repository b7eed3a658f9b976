package stepwell_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// t is what a test would get from package testing.
var t exampleTB

type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                        {}
func (exampleTB) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (exampleTB) Fatal(a ...any)                 { panic(fmt.Sprint(a...)) }
func (exampleTB) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

type Purchase struct {
	ID     string
	Amount int64 // cents
}

type Receipt struct{ Payment, Status string }

var (
	Order  = stepwell.NewWorkflow[Purchase, Receipt]("order")
	Charge = stepwell.NewStep[Purchase, string]("charge", stepwell.Attempts(5))
	Ship   = stepwell.NewStep[string, stepwell.None]("ship")
)

// order charges a card, waits a day, and ships. It survives the death of any process at any moment.
func order(w *stepwell.Context, p Purchase) (Receipt, error) {
	payment, err := Charge.Run(w, p) // retried up to five times, and recorded once
	if err != nil {
		return Receipt{}, err
	}
	if err := w.Sleep(24 * time.Hour); err != nil { // no process waits meanwhile
		return Receipt{}, err
	}
	_, err = Ship.Run(w, p.ID)
	return Receipt{payment, "shipped"}, err
}

// charge is an ordinary function.
func charge(ctx context.Context, p Purchase) (string, error) {
	return "payment for " + p.ID, nil
}

func ship(ctx context.Context, id string) (stepwell.None, error) {
	return stepwell.None{}, nil
}

// A workflow is a plain Go function, and so are its steps. This test runs them without a server, in virtual time.
func Example() {
	env := stepwelltest.New(t, Order.Bind(order), Charge.Bind(charge), Ship.Bind(ship))
	started := env.Now()
	run := stepwelltest.Start(env, Order, Purchase{ID: "7", Amount: 2500})
	env.RunUntilDone()

	receipt, err := run.Result()
	fmt.Println(receipt.Payment, receipt.Status, err)
	fmt.Println(env.Now().Sub(started))
	// Output:
	// payment for 7 shipped <nil>
	// 24h0m0s
}
