package stepwell_test

import (
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Withdraw = stepwell.NewUpdate[int, int]("withdraw")
	Purse    = stepwell.NewWorkflow[int, int]("purse", stepwell.WithInbox(Withdraw))
)

// purse hands out money until nothing is left. Who asks for some gets what is left, or learns why it gets nothing.
func purse(w *stepwell.Context, left int) (int, error) {
	for left > 0 {
		u, err := Withdraw.Receive(w)
		if err == nil && u.Input > left {
			err = u.Reject(w, stepwell.Fail("funds", "there is not enough"))
		} else if err == nil {
			left -= u.Input
			err = u.Reply(w, left)
		}
		if err != nil {
			return 0, err
		}
	}
	return left, nil
}

func ExampleUpdateKind() {
	env := stepwelltest.New(t, Purse.Bind(purse))
	run := stepwelltest.Start(env, Purse, 100)
	stepwelltest.Ask(env, Withdraw, run.ID(), 70, "w1") // outside of tests: Withdraw.Ask(ctx, client, run.ID(), 70)
	stepwelltest.Ask(env, Withdraw, run.ID(), 50, "w2")
	stepwelltest.Ask(env, Withdraw, run.ID(), 30, "w3")
	env.RunUntilDone()
	for _, id := range []string{"w1", "w2", "w3"} {
		fmt.Println(stepwelltest.Answer(env, Withdraw, run.ID(), id))
	}
	// Output:
	// 30 true <nil>
	// 0 true run wrun_00000000000000000000000001 rejected update w2: funds: there is not enough
	// 0 true <nil>
}
