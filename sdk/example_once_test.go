package stepwell_test

import (
	"context"
	"errors"
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var Pay = stepwell.NewWorkflow[int, string]("pay")

var (
	// Wire must not happen twice.
	Wire = stepwell.NewStep[int, string]("wire", stepwell.AtMostOnce())
)

// pay wires money. If nobody knows whether it was wired, a person looks.
func pay(w *stepwell.Context, cents int) (string, error) {
	transfer, err := Wire.Run(w, cents)
	if failed, ok := errors.AsType[*stepwell.StepError](err); ok && failed.Code == "no_answer" {
		return "", stepwell.Fail("look", "the bank's statement says whether it was wired")
	}
	return transfer, err
}

func ExampleAtMostOnce() {
	env := stepwelltest.New(t, Pay.Bind(pay), Wire.Bind(func(context.Context, int) (string, error) { return "wired", nil }))
	run := stepwelltest.Start(env, Pay, 2500)
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: wired <nil>
}
