package stepwell_test

import (
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Withdraw = stepwell.NewUpdate[int, int]("withdraw")
	Wallet   = stepwell.NewWorkflow[int, int]("wallet", stepwell.WithInbox(Withdraw))
)

// wallet takes withdrawals until its balance is 0. It rejects a withdrawal that is larger than the balance.
func wallet(w *stepwell.Context, balance int) (int, error) {
	for balance > 0 {
		u, err := Withdraw.Receive(w)
		if err == nil && u.Input > balance {
			err = u.Reject(w, stepwell.Fail("funds", "there is not enough"))
		} else if err == nil {
			balance -= u.Input
			err = u.Reply(w, balance)
		}
		if err != nil {
			return 0, err
		}
	}
	return balance, nil
}

func ExampleUpdateKind() {
	env := stepwelltest.New(t, Wallet.Bind(wallet))
	run := stepwelltest.Start(env, Wallet, 100)
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
