package stepwell_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var Quote = stepwell.NewWorkflow[string, int]("quote")

// quote calls a service right here, without a step of its own. The result is recorded: when the workflow runs again, the
// function is not called.
func quote(w *stepwell.Context, sku string) (int, error) {
	token := stepwell.Value(w, "token", rand.Text) // a secret, recorded before it is used
	return stepwell.Do(w, "price", func(ctx context.Context) (int, error) {
		return price(ctx, sku, token)
	}, stepwell.Attempts(4), stepwell.AttemptTimeout(5*time.Second))
}

func price(_ context.Context, sku, _ string) (int, error) { return len(sku) * 100, nil }

func ExampleDo() {
	env := stepwelltest.New(t, Quote.Bind(quote))
	run := stepwelltest.Start(env, Quote, "teapot")
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: 600 <nil>
}
