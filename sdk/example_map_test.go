package stepwell_test

import (
	"context"
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type Line struct {
	SKU   string
	Count int
}

var (
	Pack    = stepwell.NewWorkflow[[]Line, []string]("pack")
	Reserve = stepwell.NewStep[Line, string]("reserve")
)

// pack reserves all lines, eight at a time. The results have the order of the lines.
func pack(w *stepwell.Context, lines []Line) ([]string, error) {
	return stepwell.MapBy(w, lines,
		func(l Line) string { return l.SKU }, // names the item in the log, so lines may be inserted later
		func(w *stepwell.Context, l Line) (string, error) { return Reserve.Run(w, l) },
		stepwell.Concurrency(8))
}

func ExampleMapBy() {
	env := stepwelltest.New(t, Pack.Bind(pack))
	stepwelltest.Stub(env, Reserve, func(_ context.Context, l Line) (string, error) {
		return fmt.Sprint(l.Count, " × ", l.SKU), nil
	})
	run := stepwelltest.Start(env, Pack, []Line{{"teapot", 1}, {"cup", 6}})
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: [1 × teapot 6 × cup] <nil>
}
