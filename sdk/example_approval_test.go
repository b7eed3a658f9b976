package stepwell_test

import (
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Refund   = stepwell.NewWorkflow[string, string]("refund")
	Approval = stepwell.NewApproval("approval")
)

// refund asks a person. The question waits in the database for up to three days.
func refund(w *stepwell.Context, order string) (string, error) {
	answer, err := Approval.Ask(w, stepwell.Question{
		Text: "Refund order " + order + "?", Token: "refund-" + order, Expires: 72 * time.Hour,
	})
	switch {
	case err != nil:
		return "", err
	case answer.Expired:
		return "nobody answered", nil
	case !answer.Approved:
		return "", stepwell.Fail("rejected", answer.By+" has rejected it")
	}
	return "approved by " + answer.By, nil
}

func ExampleApprovalKind() {
	env := stepwelltest.New(t, Refund.Bind(refund))
	run := stepwelltest.Start(env, Refund, "7")
	env.RunUntilIdle() // until it waits for the answer
	env.Resume("refund-7", stepwell.Answer{Approved: true, By: "ann"})
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: approved by ann <nil>
}
