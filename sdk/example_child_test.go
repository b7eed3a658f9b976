package stepwell_test

import (
	"fmt"
	"strings"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Report  = stepwell.NewWorkflow[[]string, string]("report")
	Chapter = stepwell.NewWorkflow[string, string]("chapter")
)

// report starts a run for each chapter. Each has a log of its own, and can be watched and cancelled on its own.
func report(w *stepwell.Context, titles []string) (string, error) {
	chapters, err := stepwell.Map(w, titles, func(w *stepwell.Context, title string) (string, error) {
		return Chapter.Child(w, title).Await(w)
	})
	return strings.Join(chapters, ", "), err
}

func chapter(w *stepwell.Context, title string) (string, error) { return strings.ToUpper(title), nil }

func ExampleWorkflow_Child() {
	env := stepwelltest.New(t, Report.Bind(report), Chapter.Bind(chapter))
	run := stepwelltest.Start(env, Report, []string{"sales", "returns"})
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: SALES, RETURNS <nil>
}
