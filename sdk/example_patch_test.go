package stepwell_test

import (
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Signup  = stepwell.NewWorkflow[string, stepwell.None]("signup")
	Welcome = stepwell.NewStep[string, stepwell.None]("welcome")
	Tour    = stepwell.NewStep[string, stepwell.None]("tour")
)

// signup got its tour later. Runs that had passed this line before keep to what they did.
func signup(w *stepwell.Context, user string) (stepwell.None, error) {
	if w.Patched("tour") {
		if _, err := Tour.Run(w, user); err != nil {
			return stepwell.None{}, err
		}
	}
	return Welcome.Run(w, user)
}

func ExampleContext_Patched() {
	env := stepwelltest.New(t, Signup.Bind(signup))
	welcomed, toured := stepwelltest.Spy(env, Welcome), stepwelltest.Spy(env, Tour)
	stepwelltest.Start(env, Signup, "ann")
	env.RunUntilDone()
	fmt.Println(toured.Calls(), welcomed.Calls())
	// Output: [ann] [ann]
}
