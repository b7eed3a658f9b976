package stepwell_test

import (
	"errors"
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type Deposit struct{ Cents int64 }

var (
	Deposits = stepwell.NewInbox[Deposit]("deposits")
	Balance  = stepwell.NewStoreKey[int64]("balance")
	Account  = stepwell.NewWorkflow[string, int64]("account", stepwell.WithInbox(Deposits))
)

// account adds up deposits until none comes for an hour. The inbox is opened with the run, so nothing that is sent after
// the start is lost. The balance can be read from outside at any time.
func account(w *stepwell.Context, owner string) (int64, error) {
	for {
		d, err := Deposits.ReceiveWithin(w, time.Hour)
		if errors.Is(err, stepwell.ErrTimeout) {
			total, _ := Balance.Get(w)
			return total, nil
		}
		if err != nil {
			return 0, err
		}
		Balance.Update(w, func(n int64) int64 { return n + d.Cents })
		if w.ShouldContinue() { // the log gets long
			return Account.ContinueAs(w, owner)
		}
	}
}

func ExampleInboxKind() {
	env := stepwelltest.New(t, Account.Bind(account))
	run := stepwelltest.Start(env, Account, "ann")
	stepwelltest.Send(env, Deposits, run.ID(), Deposit{100}, "deposit-1")
	stepwelltest.Send(env, Deposits, run.ID(), Deposit{50}, "deposit-2")
	stepwelltest.Send(env, Deposits, run.ID(), Deposit{50}, "deposit-2") // sent again: counts once
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: 150 <nil>
}
