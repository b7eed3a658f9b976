package stepwell_test

import (
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type Paid struct {
	Order string `json:"order"`
}

var (
	Settle    = stepwell.NewWorkflow[string, string]("settle")
	OrderPaid = stepwell.NewSignal[Paid]("order.paid")
)

// settle waits for a signal about its order, for at most a day. The log decides which came first.
func settle(w *stepwell.Context, order string) (string, error) {
	return stepwell.Select(w,
		stepwell.On(OrderPaid.Wait(w, stepwell.Where("data.order == %s", order)),
			func(w *stepwell.Context, s stepwell.Received[Paid]) (string, error) { return "settled", nil }),
		stepwell.After(24*time.Hour,
			func(w *stepwell.Context) (string, error) { return "unsettled", nil }))
}

func ExampleSelect() {
	env := stepwelltest.New(t, Settle.Bind(settle))
	run := stepwelltest.Start(env, Settle, "7")
	env.RunUntilDone() // a day passes
	fmt.Println(run.Result())
	// Output: unsettled <nil>
}
